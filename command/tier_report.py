"""The result of `check-pass` as a page of text, and as JUnit XML."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from copyproof.command.tiers import Checked, Tier
from copyproof.spec.errors import BadInput
from copyproof.spec.obligations import Verdict
from copyproof.verify.render import coloured

_SHOWN = 6
_WIDTH = 120


def show(result: Checked) -> None:
    """Prints one table, one verdict, and what is behind each tier that is not proved."""
    console = Console(soft_wrap=True, highlight=False)
    console.width = max(console.width, _WIDTH)
    console.print(f"{coloured(result.verdict)}  {escape(result.pass_name)}")
    table = Table(box=None, pad_edge=False)
    for column in ("tier", "verdict", "seconds", "covered"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for tier in result.tiers:
        table.add_row(tier.name, _said(tier), f"{tier.seconds:.0f}", escape(tier.covered))
    console.print(table)
    for tier in result.tiers:
        if tier.reasons:
            console.print(f"\n{_said(tier)} {tier.name}: {escape(tier.question)}")
            for name, reason in list(tier.reasons.items())[:_SHOWN]:
                console.print(f"  {escape(name)}: {escape(reason)}")
            if len(tier.reasons) > _SHOWN:
                console.print(f"  and {len(tier.reasons) - _SHOWN} more; --json has all")


def write_junit(result: Checked, path: Path) -> None:
    """Writes a test suite with a test case for each tier: a failure where it is refuted, an error where it is unknown,
    skipped where it does not apply.

    Raises:
        BadInput: the file cannot be written.
    """
    suite = ElementTree.Element("testsuite", name=f"copyproof check-pass {result.pass_name}")
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for tier in result.tiers:
        counts["tests"] += 1
        case = ElementTree.SubElement(suite, "testcase", classname=result.pass_name, name=tier.name)
        case.set("time", f"{tier.seconds:.2f}")
        text = _printable("\n".join(f"{name}: {reason}" for name, reason in tier.reasons.items()))
        if tier.verdict is None:
            counts["skipped"] += 1
            ElementTree.SubElement(case, "skipped", message=tier.covered)
        elif tier.verdict is not Verdict.PROVED:
            refuted = tier.verdict is Verdict.REFUTED
            counts["failures" if refuted else "errors"] += 1
            message = f"{tier.verdict.value}: {tier.question}"
            ElementTree.SubElement(case, "failure" if refuted else "error", message=message).text = text
    for name, count in counts.items():
        suite.set(name, str(count))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    try:
        ElementTree.ElementTree(suites).write(path, encoding="unicode", xml_declaration=True)
    except OSError as error:
        raise _cannot_write(path, error) from error


def require_writable(path: Path) -> None:
    """Raises BadInput where a file cannot be written there."""
    try:
        path.touch()
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> BadInput:
    return BadInput(f"--junit {path}: {error.strerror}; give a file that can be written")


def _printable(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return "".join(c if c in "\n\t" or c.isprintable() else "?" for c in text)


def _said(tier: Tier) -> str:
    return coloured(tier.verdict) if tier.verdict is not None else "[dim]not run[/dim]"
