"""A survey as text and as scripts: progress, the table of faults, the smallest program of each."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from copyproof.spec.obligations import Verdict
from copyproof.verify.exhaustive.script import Seen, seen
from copyproof.verify.exhaustive.survey import Progress as Meter
from copyproof.verify.exhaustive.survey import Refuted, Survey
from copyproof.verify.render import coloured

_LINES = 4


@dataclass(frozen=True)
class Script:
    """A script that shows a fault, and what it printed."""

    path: Path
    seen: Seen


def name_of(refuted: Refuted) -> str:
    """What a fault is called: `ORDER READ_DIRECTLY`."""
    return f"{refuted.obligation.name} {refuted.fault.name}"


def scripts_of(found: Survey, folder: Path, end: float | None = None) -> dict[str, Script]:
    """Writes a script into `folder` for each kind of fault that a survey found, once a run has shown it.

    Args:
        found: the survey.
        folder: where.
        end: when to begin no other run, by `time.perf_counter`.

    Returns:
        the script by what the fault is called; those that no run shows have none.
    """
    wanted = [r for r in found.found if r.verdict is Verdict.REFUTED and r.report is not None]

    def run(refuted: Refuted) -> Seen | None:
        if end is not None and time.perf_counter() > end:
            return None
        return seen(refuted.recipe, found.pass_name, f"{refuted.obligation.name}: {refuted.fault.value}")

    scripts = {}
    pool = ThreadPoolExecutor(os.cpu_count())  # each run is a process of its own
    try:
        for refuted, shown in zip(wanted, pool.map(run, wanted), strict=True):
            if shown is not None:
                path = folder / f"{name_of(refuted).lower().replace(' ', '_')}.py"
                path.write_text(shown.text)
                scripts[name_of(refuted)] = Script(path, shown)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return scripts


@contextmanager
def counting(wanted: bool) -> Iterator[Meter | None]:
    """A function that shows how far a survey is, for as long as the context lasts; None where it is not wanted."""
    if not wanted:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} blocks"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)

        def show(found: Survey) -> None:
            rate = found.programs / found.elapsed if found.elapsed else 0.0
            faults = f", {found.programs - found.closed:,} with something open" if found.closed < found.programs else ""
            text = f"{found.programs:,} programs, {rate:,.0f}/s{faults}"
            bar.update(task, completed=found.done, total=found.blocks, description=text)

        yield show


def show(found: Survey, scripts: dict[str, Script]) -> None:
    """Prints a survey: the verdict, what was covered, and the smallest program of each kind of fault."""
    console = Console(soft_wrap=True, highlight=False)
    shard = f", shard {found.shard[0]}/{found.shard[1]}" if found.shard != (1, 1) else ""
    console.print(f"{coloured(found.verdict)}  {escape(found.pass_name)} on all small programs{shard}")
    console.print(f"bounds: {escape(found.bounds.spelled)}")
    if found.kept:
        console.print(f"{found.kept} of {found.blocks} blocks were done before, and are kept in --out")
    whole = "all of them" if found.complete else f"not complete: {found.done} of {found.blocks} blocks; run it again"
    console.print(
        f"{found.programs:,} programs judged ({whole}), {found.closed:,} proved, "
        f"{found.rate:,.0f} per second and process"
    )
    if not found.found:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("obligation", "verdict", "programs", "fault"):
        table.add_column(column, justify="right" if column == "programs" else "left")
    for refuted in found.found:
        quality = "" if refuted.obligation.safety else " (quality)"
        table.add_row(
            f"{refuted.obligation.name}{quality}",
            coloured(refuted.verdict),
            f"{refuted.count:,}",
            escape(refuted.fault.value),
        )
    console.print(table)
    for refuted in found.found:
        _show_one(console, refuted, scripts.get(name_of(refuted)))


def _show_one(console: Console, refuted: Refuted, script: Script | None) -> None:
    console.print(f"\n[bold]{name_of(refuted)}[/]: the smallest program of {refuted.count:,}")
    for line in refuted.recipe.as_lines():
        console.print(f"  [dim]|[/dim] {escape(line)}")
    if refuted.report is None:
        console.print(f"  {escape(refuted.about)}")
        return
    for reason in refuted.report[refuted.obligation].reasons[:_LINES]:
        console.print(f"  {escape(reason)}")
    if script is None:
        if refuted.verdict is Verdict.REFUTED:
            console.print("  no script: a fault of structure, which changes no numbers of three calls")
        return
    console.print(f"  {escape(script.seen.where.value)}")
    for line in script.seen.printed.splitlines()[:_LINES]:
        console.print(f"  {escape(line)}")
    console.print(f"  script: {escape(str(script.path))}")
