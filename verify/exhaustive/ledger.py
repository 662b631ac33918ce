"""The folder in which surveys keep what they have done: a file for each shard, a row for each block that is done.

A survey goes on with what any shard of the same survey has done, so that shards that ran elsewhere are brought together
by putting their files into one folder.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from copyproof.spec.errors import BadInput
from copyproof.spec.obligations import Obligation
from copyproof.verify.exhaustive.bounds import Bounds
from copyproof.verify.exhaustive.recipe import Recipe
from copyproof.verify.exhaustive.screen import Fault
from copyproof.verify.exhaustive.tally import BlockTally, Sighting
from copyproof.verify.passes import fingerprint


class Ledger:
    """What is kept of a survey, or nothing where there is no folder. Use it in a `with`.

    Args:
        folder: where; made if it is not there.
        pass_name, bounds, shard: which survey. A file of this shard about another one (another pass, other bounds,
            sources that have changed since) is put aside as `.old`; such files of other shards are not looked at.

    Raises:
        BadInput: the folder or its file cannot be written.
    """

    def __init__(self, folder: Path | None, pass_name: str, bounds: Bounds, shard: tuple[int, int]) -> None:
        self.connection: sqlite3.Connection | None = None
        self.folder = folder
        if folder is None:
            return
        self.about = {"pass": pass_name, "source": fingerprint(pass_name), "bounds": bounds.spelled}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"blocks-{shard[0]}-of-{shard[1]}.sqlite"
            if path.exists() and _about(path) != self.about:
                path.rename(path.with_suffix(".old"))
            self.connection = sqlite3.connect(path)
            with self.connection:
                self.connection.execute("create table if not exists about (key text primary key, value text)")
                self.connection.execute("create table if not exists block (number integer primary key, tally text)")
                self.connection.executemany("insert or replace into about values (?, ?)", self.about.items())
        except (OSError, sqlite3.Error) as error:
            raise BadInput(f"--out {folder} cannot be written ({error}); name another folder") from error

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.connection is not None:
            self.connection.close()

    def keep(self, tally: BlockTally) -> None:
        """Writes down what a block gave."""
        if self.connection is not None:
            with self.connection:
                row = (tally.number, json.dumps(_as_json(tally)))
                self.connection.execute("insert or replace into block values (?, ?)", row)

    def tallies(self) -> Iterator[BlockTally]:
        """What was written down before, by any shard, each block once."""
        if self.folder is None:
            return
        seen: set[int] = set()
        for path in sorted(self.folder.glob("blocks-*-of-*.sqlite")):
            if _about(path) != self.about:
                continue
            try:
                with sqlite3.connect(path) as other:
                    rows = other.execute("select number, tally from block order by number").fetchall()
            except sqlite3.Error:
                continue
            for number, text in rows:
                try:
                    tally = _from_json(number, json.loads(text))
                except (KeyError, ValueError, TypeError, AttributeError):
                    continue  # a row that cannot be read is of a block that is not done
                if number not in seen:
                    seen.add(number)
                    yield tally


def _about(path: Path) -> dict[str, str]:
    """What survey a file is about; nothing where it is none."""
    try:
        with sqlite3.connect(path) as connection:
            return dict(connection.execute("select key, value from about"))
    except sqlite3.Error:
        return {}


def _as_json(tally: BlockTally) -> dict[str, Any]:
    return {
        "programs": tally.programs,
        "closed": tally.closed,
        "seconds": tally.seconds,
        "faults": [
            {
                "obligation": obligation.name,
                "fault": fault.name,
                "count": count,
                "first": [[s.place, s.about, s.recipe.as_json()] for s in tally.first[obligation, fault]],
            }
            for (obligation, fault), count in tally.counts.items()
        ],
    }


def _from_json(number: int, data: dict[str, Any]) -> BlockTally:
    tally = BlockTally(number, data["programs"], data["closed"], seconds=data["seconds"])
    for fault in data["faults"]:
        key = Obligation[fault["obligation"]], Fault[fault["fault"]]
        tally.counts[key] = fault["count"]
        tally.first[key] = [
            Sighting(number, place, Recipe.from_json(recipe), about) for place, about, recipe in fault["first"]
        ]
    return tally
