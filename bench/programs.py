"""Where the time goes when a pass runs on small programs: making them, the pass, and the proof.

    python -m bench.programs [PKG.MOD:FN]

One process, processor time of each part over the same programs; only the shares mean something.
"""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from copyproof.spec.pipeline import REFERENCE_PASS, as_pair
from copyproof.verify.exhaustive.bounds import Bounds, recipes
from copyproof.verify.exhaustive.screen import Screen
from copyproof.verify.passes import named_pass, rule_of

_FIRST, _COUNT = 60_000, 3_000
"""Programs of the default bounds from the middle of the enumeration, two steps each."""


def main() -> None:
    """Prints the table for the pass that is named, or the reference pass."""
    logging.disable(logging.ERROR)
    write_back_pass = named_pass(sys.argv[1] if len(sys.argv) > 1 else REFERENCE_PASS)
    screen = Screen(rule=rule_of(write_back_pass))
    chosen = list(itertools.islice(recipes(Bounds()), _FIRST, _FIRST + _COUNT))
    gc.disable()
    spent: dict[str, float] = {}

    def timed(name: str, part: Callable[[Any], Any], over: list[Any]) -> list[Any]:
        started = time.process_time()
        found = [part(item) for item in over]
        spent[name] = time.process_time() - started
        return found

    programs = timed("making the program", screen.builder.program, chosen)
    results = timed("the pass", lambda program: as_pair(write_back_pass(program)), programs)
    made = list(zip(chosen, programs, results, strict=True))
    pairs = timed("reading and evaluating both meanings", lambda m: screen.pair(m[0], *m[2]), made)
    whole = timed("all of the proof", lambda m: screen.open_ways(m[0], [m[1]], *m[2]), made)
    assert len(pairs) == len(whole)
    spent["closing each way to break an obligation"] = (
        spent.pop("all of the proof") - spent["reading and evaluating both meanings"]
    )
    total = sum(spent.values())
    table = Table(title=f"{_COUNT} programs, {_COUNT / total:,.0f} per second of one core")
    for column in ("part", "share"):
        table.add_column(column, justify="right" if column == "share" else "left")
    for name, seconds in spent.items():
        table.add_row(name, f"{seconds / total:.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()
