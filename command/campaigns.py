"""A campaign as text: how it goes, what it found, how coverage grew, and what ran."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from copyproof.fuzz.campaign.agreement import Runs
from copyproof.fuzz.campaign.failure import Fault
from copyproof.fuzz.campaign.record import Finding, Record, new_findings


@contextmanager
def told(wanted: bool | None) -> Iterator[Callable[[str], None]]:
    """A function that is told how it goes, for as long as the context lasts. On a terminal, or where it is `wanted`, it
    shows a line in the place of the one before; elsewhere, where it is not unwanted, it prints one now and then."""
    if wanted is False:
        yield lambda line: None
        return
    if wanted is None and not sys.stderr.isatty():
        yield _now_and_then()
        return
    with Live(console=Console(stderr=True), refresh_per_second=2, transient=True) as live:
        yield lambda line: live.update(line)


def _now_and_then() -> Callable[[str], None]:
    last = time.monotonic()

    def tell(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            click.echo(f"{datetime.now():%H:%M} {line}", err=True)

    return tell


_SECONDS_BETWEEN_LINES = 300.0


def show(record: Record, folder: Path, as_json: bool) -> None:
    """Prints what a record holds."""
    if as_json:
        click.echo(json.dumps(_as_json(record, folder), indent=2))
        return
    # Where no terminal says how wide it is, names of folders are to stay whole.
    console = Console(width=None if sys.stdout.isatty() else 1000)
    findings = record.findings()
    about = record.about
    console.print(f"[bold]{escape(about['pass'])}[/bold], seed {about['seed']}, in {escape(str(folder))}")
    _show_work(console, record)
    _show_coverage(console, record)
    serious = [f for f in findings if f.failure.fault == Fault.PROVER.name]
    if serious:
        console.print(f"\n[bold red]a proof and a run disagree ({len(serious)} kinds): copyproof is wrong[/bold red]")
    fresh = new_findings(findings)
    _show_findings(console, "new", fresh, folder)
    _show_findings(console, "known", [f for f in findings if f.known], folder)
    for name, why, seen in record.gone():
        console.print(f"\nknown issue {name} does not show any more ({escape(why)}); instead: {escape(seen)}")
    kinds = "kind" if len(fresh) == 1 else "kinds"
    console.print(f"\n{len(fresh)} new {kinds} of failure, {len(findings) - len(fresh)} known")


def _show_work(console: Console, record: Record) -> None:
    table = Table("level", "pipeline", "programs", "rejected", "per second and process", "where the time went")
    for (level, pipeline), total in record.totals().items():
        spent = sorted(total["told"].get("seconds", {}).items(), key=lambda item: -item[1])
        whole = total["seconds"] or 1.0
        where = ", ".join(f"{what} {seconds / whole:.0%}" for what, seconds in spent if seconds / whole >= 0.02)
        rejected = f"{total['rejected'] / max(total['programs'], 1):.1%}"
        rate = f"{total['programs'] / whole:.1f}"
        table.add_row(level, pipeline or "-", f"{total['programs']:,}", rejected, rate, where)
    console.print(table)
    agreement = Table("verdict", *(f"runs {runs.value}" for runs in Runs))
    counts: dict[str, dict[str, int]] = {}
    for total in record.totals().values():
        for key, count in total["told"].get("agreement", {}).items():
            what, verdict, runs = key.split(" ", 2)
            row = counts.setdefault(f"{what} {verdict}", {})
            row[runs] = row.get(runs, 0) + count
    for verdict, row in sorted(counts.items()):
        agreement.add_row(verdict, *(f"{row.get(runs, 0):,}" for runs in [r.value for r in Runs]))
    console.print(agreement)


def _show_coverage(console: Console, record: Record) -> None:
    hazards, branches = record.coverage("hazard"), record.coverage("branch")
    if hazards:
        began = min(first for _, first, _ in hazards)
        table = Table("hazard", "programs", "first after")
        for what, first, count in hazards:
            table.add_row(what, f"{count:,}", f"{(first - began) / 60:.1f} min")
        console.print(table)
    if branches:
        last = datetime.fromtimestamp(max(first for _, first, _ in branches))
        console.print(f"{len(branches)} branches of the pass taken, the last new one at {last:%Y-%m-%d %H:%M}")


def _show_findings(console: Console, what: str, findings: list[Finding], folder: Path) -> None:
    if not findings:
        return
    table = Table(f"{what}: at fault", "between", "broken", "programs")
    table.add_column("where" if what == "new" else "known as", overflow="fold")
    for finding in findings:
        failure = finding.failure
        broken = ": ".join(part for part in (failure.obligation, failure.shape) if part)
        if failure.raised and failure.lines:
            broken = failure.lines[0]
        where = finding.known or _folder(finding, folder)
        between = f"{failure.left} / {failure.right}"
        cells = (Fault[failure.fault].value, between, escape(broken or "-"), str(finding.count))
        table.add_row(*cells, escape(where or "not made small yet: the same command goes on"))
    console.print(table)


def _folder(finding: Finding, folder: Path) -> str:
    """The folder of a finding, or empty where none is written (yet)."""
    path = folder / "failures" / finding.name
    return str(path) if path.is_dir() else ""


def _as_json(record: Record, folder: Path) -> dict[str, Any]:
    return {
        **record.about,
        "work": [
            {"level": level, "pipeline": pipeline, **total} for (level, pipeline), total in record.totals().items()
        ],
        "findings": [
            {
                "signature": f.signature,
                "fault": f.failure.fault,
                "obligation": f.failure.obligation,
                "programs": f.count,
                "known": f.known,
                "program": json.loads(f.reduced or f.program),
                "lines": list(f.failure.lines),
                "printed": f.seen,
                "folder": _folder(f, folder),
            }
            for f in record.findings()
        ],
        "hazards": {what: count for what, _, count in record.coverage("hazard")},
        "branches": len(record.coverage("branch")),
        "gone": [{"name": name, "why": why, "instead": seen} for name, why, seen in record.gone()],
    }
