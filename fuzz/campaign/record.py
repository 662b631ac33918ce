"""A campaign's record, in SQLite: which units are done, what was found, how coverage grew. Each unit is written down
whole as soon as it is done, so that a campaign that was killed goes on where it stopped."""

from __future__ import annotations

import fcntl
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copyproof.fuzz.campaign.failure import Failure, rank
from copyproof.spec.errors import BadInput, first_line

if TYPE_CHECKING:
    from copyproof.fuzz.campaign.minimise import Minimal
    from copyproof.fuzz.campaign.unit import Outcome

_ADDED = ("rejected", "skipped", "agreement", "seconds")
"""What units tell that is added up."""

_TABLES = """
create table if not exists about (key text primary key, value text);
create table if not exists unit (
    key text primary key, level text, pipeline text, programs integer, rejected integer, seconds real, ended real,
    told text
);
create table if not exists finding (
    signature text primary key, name text, level text, pipeline text, count integer, first real, program text,
    failure text, reduced text, seen text, known text
);
create table if not exists coverage (what text, kind text, first real, count integer, primary key (what, kind));
create table if not exists gone (name text primary key, why text, told text);
"""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Within this context no other campaign works in a folder, however this one ends.

    Raises:
        BadInput: one does already.
    """
    with (folder / "campaign.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(f"another campaign is at work in {folder}; wait for it, or name another folder") from error
        yield


@contextmanager
def _reading() -> Iterator[None]:
    """Within this context a record that cannot be read is bad input."""
    try:
        yield
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"the campaign's record is damaged ({first_line(error)}); take a copy of campaign.sqlite, or begin anew"
        ) from error


@dataclass(frozen=True)
class Finding:
    """A kind of failure, as the record has it.

    Attributes:
        signature, name: what tells it from others, and a short name for files.
        level, pipeline: where it was found first.
        count: how many programs showed it.
        program: the smallest program as it was found, as JSON.
        failure: what it showed.
        reduced: the program made small, as JSON; empty until then.
        seen: what its script printed; empty where it showed nothing.
        known: the name of the known issue that it is, or empty.
    """

    signature: str
    name: str
    level: str
    pipeline: str
    count: int
    program: str
    failure: Failure
    reduced: str
    seen: str
    known: str


class Record:
    """The record in a campaign's folder.

    Args:
        folder: the campaign's folder, made if it is not there.
        about: what the campaign is about; a record about something else is not gone on with.

    Raises:
        BadInput: the folder cannot be written, or holds another campaign, or no campaign.
    """

    def __init__(self, folder: Path, about: dict[str, str] | None = None) -> None:
        path = folder / "campaign.sqlite"
        if path.is_file() and not path.stat().st_size and (folder / "failures").exists():
            raise BadInput(f"{path} is empty, but {folder} holds failures; take a copy of it, or name another folder")
        if about is None and not path.is_file():
            raise BadInput(f"{folder} holds no campaign; name the folder that was given to `copyproof fuzz --out`")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=30)
            self._connection.executescript(_TABLES)
            kept = dict(self._connection.execute("select key, value from about"))
            if about is None and "pass" not in kept:
                raise BadInput(f"{path} holds no campaign; name the folder that was given to `copyproof fuzz --out`")
            if about is not None:
                told = {key: value for key, value in kept.items() if key in about and value != about[key]}
                if told:
                    changed = ", ".join(f"{key} {value!r}" for key, value in told.items())
                    raise BadInput(f"{folder} holds a campaign with other settings ({changed}); name another folder")
                with self._connection:
                    self._connection.executemany("insert or ignore into about values (?, ?)", about.items())
        except (OSError, sqlite3.Error) as error:
            raise BadInput(f"{folder} cannot be used as a campaign's folder ({error}); name another one") from error

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    @property
    def about(self) -> dict[str, str]:
        """What the campaign is about."""
        return dict(self._connection.execute("select key, value from about"))

    @_reading()
    def done(self) -> dict[str, int]:
        """How many programs the units that are done were asked for, by their keys."""
        rows = self._connection.execute("select key, programs, told from unit")
        return {key: json.loads(told).get("asked", programs) for key, programs, told in rows}

    def enter(self, outcome: Outcome, known: dict[str, str]) -> list[str]:
        """Writes down what a unit gave, all of it or nothing. What it gave before, asked for fewer programs, is not
        counted twice.

        Args:
            outcome: what it gave.
            known: the names of known issues, by signature.

        Returns:
            The hazards and the signatures that no unit had before.
        """
        now = time.time()
        unit = outcome.unit
        told = {
            "rejected": outcome.rejected,
            "skipped": outcome.skipped,
            "agreement": outcome.agreement,
            "seconds": outcome.seconds,
            "asked": unit.programs,
            "hazards": outcome.coverage,
            "found": {signature: sighting.count for signature, sighting in outcome.found.items()},
        }
        fresh = []
        with self._connection as connection:
            self._forget(unit.key)
            connection.execute(
                "insert or replace into unit values (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    unit.key,
                    unit.level,
                    unit.pipeline,
                    outcome.programs,
                    sum(outcome.rejected.values()),
                    outcome.elapsed,
                    now,
                    json.dumps(told),
                ),
            )
            for kind, counts in (("hazard", outcome.coverage), ("branch", dict.fromkeys(outcome.branches, 1))):
                had = {what for (what,) in connection.execute("select what from coverage where kind = ?", (kind,))}
                fresh += [what for what in counts if what not in had]
                connection.executemany(
                    "insert into coverage values (?, ?, ?, ?) "
                    "on conflict (what, kind) do update set count = count + excluded.count",
                    [(what, kind, now, count) for what, count in counts.items()],
                )
            for signature, sighting in outcome.found.items():
                row = connection.execute(
                    "select program, failure, reduced from finding where signature = ?", (signature,)
                )
                before = row.fetchone()
                failure = json.dumps(sighting.failure.as_json())
                if before is None:
                    fresh.append(signature)
                    connection.execute(
                        "insert into finding values (?, ?, ?, ?, ?, ?, ?, ?, '', '', ?)",
                        (
                            signature,
                            sighting.failure.slug,
                            unit.level,
                            unit.pipeline,
                            sighting.count,
                            now,
                            sighting.program,
                            failure,
                            known.get(signature, ""),
                        ),
                    )
                    continue
                connection.execute(
                    "update finding set count = count + ? where signature = ?", (sighting.count, signature)
                )
                shown = Failure.from_json(json.loads(before[1]))
                if not before[2] and rank(sighting.program, sighting.failure) < rank(before[0], shown):
                    connection.execute(
                        "update finding set level = ?, pipeline = ?, program = ?, failure = ? where signature = ?",
                        (unit.level, unit.pipeline, sighting.program, failure, signature),
                    )
        return fresh

    def _forget(self, key: str) -> None:
        """Takes out of all counts what a unit told before, if it did."""
        row = self._connection.execute("select told from unit where key = ?", (key,)).fetchone()
        told = json.loads(row[0]) if row else {}
        self._connection.executemany(
            "update coverage set count = count - ? where kind = 'hazard' and what = ?",
            [(count, what) for what, count in told.get("hazards", {}).items()],
        )
        self._connection.executemany(
            "update finding set count = count - ? where signature = ?",
            [(count, signature) for signature, count in told.get("found", {}).items()],
        )

    def reduce(self, minimal: Minimal) -> None:
        """Writes down the small program of a finding, or that there is none, and what its script printed."""
        with self._connection as connection:
            connection.execute(
                "update finding set level = ?, pipeline = ?, reduced = ?, failure = ?, seen = ? where signature = ?",
                (
                    minimal.level,
                    minimal.pipeline,
                    minimal.program or "null",
                    json.dumps(minimal.failure.as_json()),
                    minimal.printed,
                    minimal.signature,
                ),
            )

    def tell_gone(self, name: str, why: str, told: str) -> None:
        """Writes down that a known issue does not show any more."""
        with self._connection as connection:
            connection.execute("insert or replace into gone values (?, ?, ?)", (name, why, told))

    @_reading()
    def gone(self) -> list[tuple[str, str, str]]:
        """The known issues that did not show: name, why it was known, and what was seen instead."""
        return list(self._connection.execute("select name, why, told from gone order by name"))

    @_reading()
    def findings(self) -> list[Finding]:
        """All kinds of failure, those seen most first."""
        rows = self._connection.execute(
            "select signature, name, level, pipeline, count, program, failure, reduced, seen, known from finding "
            "order by count desc, signature"
        )
        return [
            Finding(signature, name, level, pipeline, count, program, Failure.from_json(json.loads(failure)), *more)
            for signature, name, level, pipeline, count, program, failure, *more in rows
        ]

    @_reading()
    def counts(self) -> tuple[dict[tuple[str, str], int], int, int]:
        """How many programs ran, by level and pipeline; how many kinds of failure there are, and how many not known."""
        rows = self._connection.execute("select level, pipeline, sum(programs) from unit group by level, pipeline")
        programs = {(level, pipeline): count for level, pipeline, count in rows}
        kinds, new = self._connection.execute(
            "select count(*), count(*) filter (where known = '') from finding"
        ).fetchone()
        return programs, kinds, new

    @_reading()
    def totals(self) -> dict[tuple[str, str], dict[str, Any]]:
        """By level and pipeline: units, programs, rejected, seconds, and what they told (`Outcome`)."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        rows = self._connection.execute(
            "select level, pipeline, programs, rejected, seconds, told from unit order by key"
        )
        for level, pipeline, programs, rejected, seconds, text in rows:
            into = found.setdefault(
                (level, pipeline), {"units": 0, "programs": 0, "rejected": 0, "seconds": 0.0, "told": {}}
            )
            into["units"] += 1
            into["programs"] += programs
            into["rejected"] += rejected
            into["seconds"] += seconds
            for what, counts in dict(json.loads(text)).items():
                if what not in _ADDED:
                    continue
                table = into["told"].setdefault(what, {})
                for key, count in counts.items():
                    table[key] = table.get(key, 0) + count
        return found

    @_reading()
    def coverage(self, kind: str) -> list[tuple[str, float, int]]:
        """The hazards or branches: what, when first, how often; as they were found."""
        rows = self._connection.execute(
            "select what, first, count from coverage where kind = ? order by first", (kind,)
        )
        return list(rows)


def new_findings(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that no file of known issues knows."""
    return [finding for finding in findings if not finding.known]
