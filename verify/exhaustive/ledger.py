"""The file that a survey keeps what it has done in: one row for each block, written when the block is done."""

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
    """A survey's file, or nothing where there is no path. Use it in a `with`.

    Raises:
        BadInput: the file is none of a survey, or of a survey of another pass (by name or source), other bounds or
            another shard.
    """

    def __init__(self, path: Path | None, pass_name: str, bounds: Bounds, shard: tuple[int, int]) -> None:
        self.connection: sqlite3.Connection | None = None
        if path is None:
            return
        about = {
            "pass": pass_name,
            "source": fingerprint(pass_name),
            "bounds": bounds.spelled,
            "shard": f"{shard[0]}/{shard[1]}",
        }
        try:
            self.connection = sqlite3.connect(path)
            with self.connection:
                self.connection.execute("create table if not exists about (key text primary key, value text)")
                self.connection.execute("create table if not exists block (number integer primary key, tally text)")
                known = dict(self.connection.execute("select key, value from about"))
                if not known:
                    self.connection.executemany("insert into about values (?, ?)", about.items())
        except sqlite3.DatabaseError as error:
            raise BadInput(f"{path} is no survey ({error}); name another folder with --out") from error
        for key, value in (known or about).items():
            if about.get(key) != value:
                what = (
                    "the source of the pass or of copyproof has changed" if key == "source" else f"its {key} is {value}"
                )
                raise BadInput(f"{path} keeps another survey: {what}; name another folder with --out, or delete it")

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
        """What was written down before."""
        if self.connection is not None:
            for number, text in self.connection.execute("select number, tally from block order by number").fetchall():
                yield _from_json(number, json.loads(text))


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
