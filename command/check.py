"""`copyproof enumerate`, `copyproof rule` and `copyproof check-pass`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from copyproof.command import options
from copyproof.command.outcome import code_of, failing
from copyproof.spec.rule import GROUPS, REFERENCE

_KINDS = ("pure", "pure-of-two", "view", "turned", "lowered-view", "clone", "several", "in-place")
_FEWER_KINDS = "pure,pure-of-two,view,turned,lowered-view,in-place"


def _shard(context: click.Context, option: click.Parameter, value: str) -> tuple[int, int]:
    """`3/16` as (3, 16)."""
    k, _, n = value.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise click.BadParameter(f"{value!r} is no shard; give K/N with 1 <= K <= N, as 3/16")
    return int(k), int(n)


def _kinds(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    """`pure,clone` as a tuple of kinds, in their own order."""
    asked = [kind.strip() for kind in value.split(",")] if value else list(_KINDS)
    unknown = [kind for kind in asked if kind not in _KINDS]
    if unknown:
        raise click.BadParameter(f"no kind of step {unknown[0]!r}; there are {', '.join(_KINDS)}")
    return tuple(kind for kind in _KINDS if kind in asked)


@click.command("enumerate")
@options.the_pass
@options.bounds
@click.option(
    "--kinds", callback=_kinds, default="", metavar="KIND,...", help=f"Only steps of these kinds: {', '.join(_KINDS)}."
)
@click.option("--shard", callback=_shard, default="1/1", metavar="K/N", help="Only the K-th of N parts of the work.")
@options.workers
@options.seconds("--seconds", "Stop enumerating after about so long.")
@options.survey_folder(
    "Keeps what is done, so that the same command goes on where it stopped, and gets a script for each kind of fault."
)
@click.option("--count", "only_count", is_flag=True, help="Only count the programs within the bounds.")
@options.progress
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def enumerate_programs(
    pass_name: str,
    targets: int,
    steps: int,
    outputs: int,
    kinds: tuple[str, ...],
    shard: tuple[int, int],
    workers: int,
    seconds: float | None,
    out: Path,
    only_count: bool,
    progress: bool | None,
    as_json: bool,
) -> None:
    """Run a pass on every small program, and prove what it makes.

    Makes all programs within the bounds, up to symmetry and without dead steps, runs the pass on each, and proves the
    result. For each kind of fault the smallest program is decided by the prover, run, and written to DIR as a script
    that needs only torch, executorch and the pass, and is a failing test as well.

    \b
        copyproof enumerate --pass my_passes.early:my_pass
        copyproof enumerate --pass shipped --targets 2 --steps 1
        copyproof enumerate --pass my_passes.early:my_pass --steps 3 --shard 3/16 --out shards/

    Exit code: 0 proved on all of them, 1 refuted, 2 bad usage or input, 3 unknown or not complete.
    """
    from copyproof.command import programs, surveys
    from copyproof.verify.exhaustive.bounds import Bounds, count_of_blocks, recipes
    from copyproof.verify.exhaustive.recipe import Kind

    with failing("enumerate", as_json):
        programs.quiet()
        bounds = Bounds(targets, steps, outputs, tuple(Kind(kind) for kind in kinds))
        if only_count:
            count = sum(1 for _ in recipes(bounds))
            found: dict[str, Any] = {"bounds": bounds.spelled, "programs": count, "blocks": count_of_blocks(bounds)}
            click.echo(json.dumps(found, indent=2) if as_json else f"{count:,} programs: {bounds.spelled}")
            return
        from copyproof.verify.exhaustive.survey import survey

        meter = sys.stderr.isatty() if progress is None else progress
        try:
            with surveys.counting(meter) as shown:
                result = survey(
                    pass_name, bounds, shard=shard, workers=workers, folder=out, seconds=seconds, progress=shown
                )
        except KeyboardInterrupt:
            click.echo(f"copyproof: stopped; what is done is kept in {out}, and the same command goes on", err=True)
            raise
        scripts = surveys.scripts_of(result, out)
    if as_json:
        click.echo(json.dumps({**result.as_json(), "scripts": {k: str(v.path) for k, v in scripts.items()}}, indent=2))
    else:
        surveys.show(result, scripts)
    sys.exit(code_of(result.verdict))


@click.command("check-pass")
@click.argument("pass_name", metavar="PKG.MOD:FN")
@options.seconds("--budget", "Seconds in all; what is not looked at by then is UNKNOWN.", 900.0)
@options.bounds
@click.option(
    "--kinds",
    callback=_kinds,
    default=_FEWER_KINDS,
    show_default=True,
    metavar="KIND,...",
    help="As of `enumerate`; by default all but those that are to a placement what `pure` is.",
)
@options.workers
@options.survey_folder("As of `enumerate`: what is done there already is not done again.")
@options.progress
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--junit", type=Path, metavar="FILE.xml", help="Write the result as JUnit XML too.")
def check_pass(
    pass_name: str,
    budget: float,
    targets: int,
    steps: int,
    outputs: int,
    kinds: tuple[str, ...],
    workers: int,
    out: Path,
    progress: bool | None,
    as_json: bool,
    junit: Path | None,
) -> None:
    """Everything that copyproof can say about a write-back pass, on one page.

    Runs each tier: identity checks, the proof of the rule that the pass offers (its attribute `rule`), all small
    programs, the corpus of models, the hazard cases, their .pte files, and their runs beside eager. The verdict is the
    worst of the tiers that apply.

    \b
        copyproof check-pass my_passes.early:my_pass
        copyproof check-pass shipped --junit report.xml

    Exit code: 0 proved, 1 refuted, 2 bad usage or input, 3 unknown.
    """
    from copyproof.command import programs, surveys
    from copyproof.verify.exhaustive.bounds import Bounds
    from copyproof.verify.exhaustive.recipe import Kind

    with failing("check-pass", as_json):
        programs.quiet()
        from copyproof.command import tier_report, tiers

        meter = sys.stderr.isatty() if progress is None else progress
        if junit is not None:
            tier_report.require_writable(junit)

        def tell(name: str) -> None:
            if meter:
                click.echo(f"{name} ...", err=True)

        with surveys.counting(meter) as shown:
            bounds = Bounds(targets, steps, outputs, tuple(Kind(kind) for kind in kinds))
            result = tiers.checked(pass_name, budget, bounds, workers, out, tell, shown)
        if junit is not None:
            tier_report.write_junit(result, junit)
    if as_json:
        found = {"pass": pass_name, "verdict": result.verdict.value, "tiers": [t.as_json() for t in result.tiers]}
        click.echo(json.dumps(found, indent=2))
    else:
        tier_report.show(result)
    sys.exit(code_of(result.verdict))


@click.command("rule")
@click.option(
    "--without",
    multiple=True,
    metavar="CONSTRAINT",
    help="Drop this constraint, or group of them, and show a graph that the rest gets wrong: "
    f"{', '.join(c.name for c in REFERENCE.constraints)}; or a group: {', '.join(GROUPS)}. May be repeated.",
)
@options.timeout("query and solver")
@click.option("--run/--no-run", default=True, show_default=True, help="Run each counterexample, to see wrong numbers.")
@click.option("--out", type=Path, metavar="DIR", help="Write each counterexample as a script here.")
@click.option("--emit-smt2", type=Path, metavar="DIR", help="Write each query, with its reading, as an SMT-LIB 2 file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def rule(
    without: tuple[str, ...], timeout: float, run: bool, out: Path | None, emit_smt2: Path | None, as_json: bool
) -> None:
    """Prove the placement rule for graphs of any size, and show what each of its constraints is for.

    Three lemmas, each decided by Z3 and by cvc5: the rule excludes conflicts; without conflicts the rewritten graph
    means what the original does; what the rule asks can always be done. Then, for each constraint: the smallest graph
    that the rest of the rule gets wrong, and the wrong numbers that a pass driven by the rest of the rule gives on it.

    \b
        copyproof rule
        copyproof rule --without alias-reads

    Exit code: 0 proved, 1 a weakened rule (--without) is refuted, 2 bad usage or input, 3 unknown.
    """
    from copyproof.spec.errors import BadInput

    with failing("rule", as_json):
        from copyproof.command import programs, rules

        programs.quiet()
        try:
            weakened = REFERENCE.without(*without) if without else REFERENCE
        except KeyError as error:
            raise BadInput(str(error.args[0])) from error
        if emit_smt2 is not None:
            programs.require_folder(emit_smt2)
            rules.write_queries(weakened, emit_smt2)
        if without:
            code = rules.show_weakened(weakened, without, timeout, run, out, as_json)
        else:
            code = rules.show_rule(timeout, run, out, as_json)
    sys.exit(code)
