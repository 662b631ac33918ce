"""Reports and placements as text."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from copyproof.command.programs import Placed
from copyproof.spec.effects import EXECUTORCH
from copyproof.spec.obligations import Verdict
from copyproof.verify import Report
from copyproof.verify.quality import Lifetimes, lifetimes

_COLOURS = {Verdict.PROVED: "green", Verdict.REFUTED: "red", Verdict.UNKNOWN: "yellow"}
_BARS = "▁▂▃▄▅▆▇█"
_CHART = 60


def report(result: Report, subject: str, strict: bool) -> None:
    """Prints a report: the verdict, obligation by obligation, and what explains it."""
    console = Console(soft_wrap=True, highlight=False)
    verdict = result.strict_verdict if strict else result.verdict
    console.print(f"{_coloured(verdict)}  {escape(subject)}")
    table = Table(box=None, pad_edge=False)
    for column in ("obligation", "verdict", "seconds"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for finding in result.findings:
        kind = "" if finding.obligation.safety else " (quality)"
        note = f" (vacuous: {finding.vacuous})" if finding.vacuous else ""
        table.add_row(
            f"{finding.obligation.name}{kind}",
            f"{_coloured(finding.verdict)}{escape(note)}",
            f"{finding.seconds:.3f}",
        )
    console.print(table)
    for finding in result.findings:
        if finding.verdict is Verdict.PROVED:
            continue
        console.print(f"\n{_coloured(finding.verdict)} {finding.obligation.name}: {finding.obligation.value}")
        for reason in finding.reasons:
            console.print(f"  {escape(reason)}")
        for conflict in finding.conflicts:
            console.print(
                escape(
                    f"  conflict: W2 {conflict.write} overwrites {conflict.target}, "
                    f"R {conflict.read} reads it later and should see W1 {conflict.last_write}"
                )
            )
            for line in conflict.excerpt:
                console.print(f"  [dim]|[/dim] {escape(line)}")
            console.print(f"  right: {escape(conflict.right)}")
    if result.witness:
        console.print("\nrun side by side:")
        for line in result.witness:
            console.print(f"  {escape(line)}")
    if result.approximations:
        console.print("\nthe verdict assumes:")
        for line in result.approximations:
            console.print(f"  {escape(line)}")
    statistics = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in result.statistics.items())
    console.print(f"\n[dim]{escape(statistics)}[/dim]")


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
    stretches = [live[i * len(live) // width : max((i + 1) * len(live) // width, i * len(live) // width + 1)] for i in range(width)]
    return "".join(_BARS[min(len(_BARS) - 1, max(s) * len(_BARS) // (highest + 1))] for s in stretches)


def _coloured(verdict: Verdict) -> str:
    return f"[bold {_COLOURS[verdict]}]{verdict.value}[/]"
