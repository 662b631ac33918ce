"""`copyproof fuzz`, `copyproof fuzz show` and `copyproof fuzz replay`."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from copyproof.command import options
from copyproof.command.outcome import failing

if TYPE_CHECKING:
    from copyproof.fuzz.campaign.executors import Executors

_LEVELS = ("modules", "graphs")


def _levels(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    """`modules,graphs` as a tuple."""
    asked = [level.strip() for level in value.split(",")]
    unknown = [level for level in asked if level not in _LEVELS]
    if unknown:
        raise click.BadParameter(f"no level {unknown[0]!r}; there are {', '.join(_LEVELS)}")
    return tuple(level for level in _LEVELS if level in asked)


def _a_number(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """`--hours nan` passes for a number within any range."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no time; give hours, as 0.5")
    return value


@contextmanager
def _stopped_by_a_signal() -> Iterator[None]:
    """Within this context SIGTERM interrupts as ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group(invoke_without_command=True)
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True, max=1e4),
    callback=_a_number,
    help="Look for so long; what was found last is made small after that.  [default: a minute]",
)
@click.option(
    "--programs",
    type=click.IntRange(1),
    help="Look at so many programs of each level and pipeline, however long; graphs come in families of eight.",
)
@options.workers
@click.option(
    "--out",
    type=Path,
    default=Path("campaign"),
    show_default=True,
    metavar="DIR",
    help="The campaign's folder: its record, its corpus and its failures. The same command goes on where it stopped.",
)
@options.the_pass
@click.option(
    "--pipeline",
    "pipelines",
    multiple=True,
    default=("shipped",),
    show_default=True,
    metavar="NAME",
    help="What to lower with: shipped (ExecuTorch's defaults, with the names of buffers), unnamed (without), reinplace "
    "(run_reinplace_pass=True), or pkg.mod:name of an ExecutorchBackendConfig or of a function that makes one. May be "
    "repeated.",
)
@click.option(
    "--level",
    "levels",
    callback=_levels,
    default="modules,graphs",
    show_default=True,
    metavar="LEVELS",
    help="modules go through torch.export and all forms down to the runtime; graphs are made directly.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides the programs.")
@click.option(
    "--known", type=Path, metavar="FILE.toml", help="The issues that are known, instead of those copyproof comes with."
)
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Work on this Dask cluster (copyproof[cluster]).")
@click.option(
    "--database", metavar="redis://HOST:PORT/N", help="Keep the corpus on this Redis server too (copyproof[cluster])."
)
@options.progress
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.pass_context
def fuzz(
    context: click.Context,
    hours: float | None,
    programs: int | None,
    workers: int,
    out: Path,
    pass_name: str,
    pipelines: tuple[str, ...],
    levels: tuple[str, ...],
    seed: int,
    known: Path | None,
    scheduler: str | None,
    database: str | None,
    progress: bool | None,
    as_json: bool,
) -> None:
    """Look for programs that a pass, or the pipeline behind it, gets wrong.

    Makes stateful programs at random, runs each in every form (eager, functional graph, rewritten graph, planned arena,
    .pte file in the runtime), asks the prover, and compares. Each kind of failure is told once, made small, and written
    to DIR/failures/NAME, where numbers differ with a script that needs torch and executorch alone.

    \b
        copyproof fuzz --hours 8 --workers 2 --out campaign/
        copyproof fuzz --pass shipped --pipeline shipped --pipeline reinplace --hours 0.5
        copyproof fuzz --scheduler tcp://HOST:8786 --database redis://HOST:6379/0 --hours 8
        copyproof fuzz show campaign/
        copyproof fuzz replay campaign/failures/NAME

    Exit code: 0 nothing but known issues, 1 something new, 2 bad usage or input, 3 no program ran, 130 interrupted.
    """
    if context.invoked_subcommand is not None:
        return
    from copyproof.command import programs as models

    with failing("fuzz", as_json):
        models.quiet()
        from copyproof.command import campaigns
        from copyproof.fuzz.campaign import corpus
        from copyproof.fuzz.campaign.campaign import Campaign, Settings, gone
        from copyproof.fuzz.campaign.executors import cluster, pool
        from copyproof.fuzz.campaign.known import OWN, known_in
        from copyproof.fuzz.campaign.pipelines import config_of
        from copyproof.fuzz.campaign.record import Record, alone, new_findings
        from copyproof.verify.passes import named_pass

        named_pass(pass_name)
        for pipeline in pipelines:
            config_of(pipeline)
        issues = tuple(known_in(OWN if known is None else known))
        executors: Executors = pool(workers)
        if scheduler is not None:
            executors, workers = cluster(scheduler)
        seconds = hours * 3600 if hours is not None else None if programs is not None else 60.0
        settings = Settings(out, pass_name, pipelines, levels, seed, seconds, programs, workers, issues)
        kept = corpus.opened(out / "corpus", database)
        record = Record(out, settings.about)
        try:
            with alone(out), campaigns.told(progress) as tell, _stopped_by_a_signal():
                Campaign(settings, record, kept, executors, tell).run()
                gone(issues, settings, record)
        except KeyboardInterrupt:
            click.echo(f"copyproof: stopped; what is done is kept in {out}, and the same command goes on", err=True)
            raise
        campaigns.show(record, out, as_json)
        ran = sum(total["programs"] for total in record.totals().values())
        fresh = new_findings(record.findings())
    sys.exit(1 if fresh else 0 if ran else 3)


@fuzz.command()
@click.argument("folder", type=Path, metavar="CAMPAIGN")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def show(folder: Path, as_json: bool) -> None:
    """Show what a campaign found, how coverage grew, and what ran.

    Exit code: 0, or 2 where the folder holds no campaign.
    """
    with failing("fuzz show", as_json):
        from copyproof.command import campaigns
        from copyproof.fuzz.campaign.record import Record

        # Nothing here needs torch, which takes seconds to import.
        campaigns.show(Record(folder), folder, as_json)


@fuzz.command()
@click.argument("folder", type=Path, metavar="CAMPAIGN/failures/NAME")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def replay(folder: Path, as_json: bool) -> None:
    """Run the program of one failure again, in every form.

    Exit code: 1 where it fails as it did, 0 where it does not, 2 where the folder holds no failure.
    """
    with failing("fuzz replay", as_json):
        from copyproof.command import programs as models

        models.quiet()
        from copyproof.fuzz.campaign.campaign import replayed
        from copyproof.fuzz.campaign.written import read_finding

        about = read_finding(folder)
        failures = replayed(about)
        still = [failure for failure in failures if failure.signature == about["signature"]]
    if as_json:
        found = {"signature": about["signature"], "fails": bool(still), "failures": [f.as_json() for f in failures]}
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"{'fails as before' if still else 'does not fail so any more'}: {about['signature']}")
        for failure in failures:
            if failure not in still:
                click.echo(f"it fails otherwise: {failure.signature}")
            for line in failure.lines:
                click.echo(f"  {line}")
    sys.exit(1 if still else 0)
