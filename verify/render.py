"""A report as text, for a terminal or a test's failure message."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from copyproof.spec.obligations import Verdict
from copyproof.verify.verdicts import Report

_COLOURS = {Verdict.PROVED: "green", Verdict.REFUTED: "red", Verdict.UNKNOWN: "yellow"}


def as_text(result: Report, subject: str, strict: bool = False) -> str:
    """The report without colours, as `show` prints it."""
    text = StringIO()
    show(result, subject, strict, Console(file=text, soft_wrap=True, highlight=False, no_color=True))
    return text.getvalue()


def show(result: Report, subject: str, strict: bool = False, console: Console | None = None) -> None:
    """Prints a report: the verdict, obligation by obligation, and what explains it.

    Args:
        result: the report.
        subject: what it is about, for the first line.
        strict: whether quality counts for the verdict.
        console: where to print; standard output if None.
    """
    console = console or Console(soft_wrap=True, highlight=False)
    verdict = result.strict_verdict if strict else result.verdict
    console.print(f"{coloured(verdict)}  {escape(subject)}")
    if result.stage:
        console.print(f"at fault: {escape(result.stage)}")
    table = Table(box=None, pad_edge=False)
    for column in ("obligation", "verdict", "seconds"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for finding in result.findings:
        kind = "" if finding.obligation.safety else " (quality)"
        note = f" (vacuous: {finding.vacuous})" if finding.vacuous else ""
        table.add_row(
            f"{finding.obligation.name}{kind}",
            f"{coloured(finding.verdict)}{escape(note)}",
            f"{finding.seconds:.3f}",
        )
    console.print(table)
    shown: set[tuple[str, str]] = set()
    for finding in result.findings:
        if finding.verdict is Verdict.PROVED:
            continue
        console.print(f"\n{coloured(finding.verdict)} {finding.obligation.name}: {finding.obligation.value}")
        for reason in finding.reasons:
            console.print(f"  {escape(reason)}")
        for conflict in finding.conflicts:
            if (conflict.write, conflict.read) in shown:
                continue
            shown.add((conflict.write, conflict.read))
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
    statistics = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in result.statistics.items())
    console.print(f"\n[dim]{escape(statistics)}[/dim]")


def coloured(verdict: Verdict) -> str:
    """A verdict in its colour, as markup of rich."""
    return f"[bold {_COLOURS[verdict]}]{verdict.value}[/]"
