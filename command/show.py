"""A placement as text: where the write-backs went, and the bytes live over the program."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from copyproof.command.programs import Placed
from copyproof.spec.effects import EXECUTORCH
from copyproof.verify.quality import Lifetimes, lifetimes

_BARS = "▁▂▃▄▅▆▇█"
_CHART = 60


def placement(placed: Placed, model: str, output: str) -> None:
    """Prints where the write-backs went, and the bytes live before and after."""
    console = Console(soft_wrap=True, highlight=False)
    before = lifetimes(placed.original, placed.at_end, EXECUTORCH)
    after = lifetimes(placed.original, placed.rewritten, EXECUTORCH)
    table = Table(box=None, pad_edge=False)
    for column in ("write-backs", "copies", "clones", "most bytes live", "bytes live on average"):
        table.add_column(column, justify="left" if column == "write-backs" else "right")
    for name, found in (("at the end", before), ("early", after)):
        average = sum(found.live) // max(1, len(found.live))
        table.add_row(name, f"{found.copies}", f"{found.clones}", f"{max(found.live, default=0):,}", f"{average:,}")
    console.print(table)
    highest = max([1, *before.live, *after.live])
    for name, found in (("at the end", before), ("early", after)):
        console.print(f"{name:>10}  {_chart(found, highest)}")
    if before.at_largest:
        console.print("[dim]symbolic sizes counted at their largest[/dim]")
    console.print(f"wrote {escape(output)}; check it with: copyproof prove {escape(model)} {escape(output)}")


def _chart(found: Lifetimes, highest: int) -> str:
    """Live bytes over the program, the most in each of a few equal stretches of steps."""
    live = found.live or [0]
    width = min(_CHART, len(live))
    stretches = [
        live[i * len(live) // width : max((i + 1) * len(live) // width, i * len(live) // width + 1)]
        for i in range(width)
    ]
    return "".join(_BARS[min(len(_BARS) - 1, max(s) * len(_BARS) // (highest + 1))] for s in stretches)
