"""The tiers of `check-pass`: each asks one question about a pass, and answers with a verdict and what it covered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram, ExportGraphSignature

from copyproof.command.surveys import name_of, scripts_of
from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.obligations import Obligation, Verdict, worst
from copyproof.spec.pipeline import as_pair, at_write_back, standing_in
from copyproof.spec.program import Role
from copyproof.verify import prove_pass
from copyproof.verify.corpus import CASES, MODELS, Example, find
from copyproof.verify.corpus.cases import DOES_NOT_REACH, NOT_IN_RUNTIME, PIPELINE_WRONG
from copyproof.verify.corpus.example import backend_config, calls_of, export, to_edge
from copyproof.verify.exhaustive.bounds import Bounds
from copyproof.verify.exhaustive.build import Builder
from copyproof.verify.exhaustive.processes import processes
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe
from copyproof.verify.exhaustive.survey import Progress, survey
from copyproof.verify.passes import named_pass, rule_of, run_pass
from copyproof.verify.stages import lowered_with, proofs_of
from copyproof.verify.verdicts import Report

_TIMEOUT = 60.0
"""Seconds for each obligation of a file."""


@dataclass
class Tier:
    """What one tier found.

    Attributes:
        name, question: what it is called, and what it asks.
        verdict: None where it does not apply; a run that shows no difference is PROVED only of what was run.
        covered: what it looked at, in a sentence.
        reasons: why it is not proved, by what it was looking at.
        seconds: how long it took.
    """

    name: str
    question: str
    verdict: Verdict | None = None
    covered: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The tier as plain dictionaries and lists."""
        return {
            "name": self.name,
            "question": self.question,
            "verdict": self.verdict.value if self.verdict is not None else "not run",
            "covered": self.covered,
            "reasons": self.reasons,
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True)
class Checked:
    """All tiers of one pass."""

    pass_name: str
    tiers: tuple[Tier, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of those that apply."""
        return worst([tier.verdict for tier in self.tiers if tier.verdict is not None])


def checked(
    pass_name: str,
    budget: float,
    bounds: Bounds,
    workers: int,
    folder: Path,
    tell: Callable[[str], None],
    progress: Progress | None,
) -> Checked:
    """Runs every tier on a pass.

    Args:
        pass_name: `pkg.mod:fn`, or `shipped`.
        budget: seconds; what is not looked at by then is UNKNOWN.
        bounds: of the exhaustive tier.
        workers: processes.
        folder: gets what the exhaustive tier keeps, and its scripts.
        tell: is told which tier begins.
        progress: is told how far the exhaustive tier is.

    Raises:
        BadInput: there is no such pass, or it fails on the smallest programs already.
    """
    started = time.perf_counter()
    write_back_pass = named_pass(pass_name)
    tiers = []
    for name, tier in (("identity", identity), ("rule", rule)):
        tell(name)
        tiers.append(_timed(tier, write_back_pass))
    tell("exhaustive")
    tiers.append(_timed(_exhaustive, pass_name, bounds, workers, folder, budget / 2, progress))
    tell("corpus, cases, files and runs")
    tiers += _examples(pass_name, workers, started + budget)
    _require_followed(tiers)
    return Checked(pass_name, tuple(tiers))


def _require_followed(tiers: list[Tier]) -> None:
    """Makes the rule tier UNKNOWN where another tier saw the pass depart from its rule."""
    departs = next((reason for tier in tiers for name, reason in tier.reasons.items() if "RULE" in name), None)
    for tier in tiers:
        if tier.name == "rule" and tier.verdict is Verdict.PROVED and departs is not None:
            tier.verdict = Verdict.UNKNOWN
            tier.reasons["not followed"] = f"the rule is proved, but the pass does not follow it: {departs}"


def identity(write_back_pass: Callable[[Any], Any]) -> Tier:
    """Where there is nothing to write back the program stays as it is, and two runs give the same."""
    tier = Tier("identity", "does it leave alone what needs nothing, and do the same twice?")
    nothing = Recipe((), (Act(Kind.PURE.value, (0,)),), (), (1,))
    in_place = Recipe((Role.BUFFER,), (Act(Kind.WRITE.value, (0, 1)),), (2,), (1,))
    busy = Recipe((Role.BUFFER, Role.BUFFER), (Act(Kind.PURE.value, (0,)),), (3, 0), (0,))
    verdicts = []
    for name, recipe in (("no target", nothing), ("in place already", in_place), ("two targets", busy)):
        try:
            verdicts.append(prove_pass(Builder().program(recipe), write_back_pass).verdict)
        except BadInput as error:
            # A pass that fails on every program is bad input: the next tiers tell.
            verdicts.append(Verdict.REFUTED)
            tier.reasons[name] = f"it fails on a program with {name}: {error}"
            continue
        if verdicts[-1] is not Verdict.PROVED:
            tier.reasons[name] = f"{verdicts[-1].value} on a program with {name}"
        before = _spelled(Builder().program(recipe))
        first, second = (_spelled(run_pass(write_back_pass, Builder().program(recipe))) for _ in range(2))
        if first != second:
            verdicts.append(Verdict.UNKNOWN)
            tier.reasons[f"{name}, twice"] = "two runs on one program give two programs; proofs speak of one of them"
        if recipe is not busy and first[0] != before[0]:
            tier.reasons[f"{name} (a note)"] = "it changes a program that has nothing to write back"
    tier.verdict = worst(verdicts)
    tier.covered = "3 programs, each twice"
    return tier


def rule(write_back_pass: Callable[[Any], Any]) -> Tier:
    """The rule that the pass offers is right for graphs of any size."""
    from copyproof.verify.rule_proof import counter_model, prove_rule

    tier = Tier("rule", "is the rule that it follows right for graphs of any size?")
    offered = rule_of(write_back_pass)
    if offered is None:
        tier.covered = "the pass has no attribute `rule`"
        return tier
    proof = prove_rule(offered)
    tier.verdict = proof.verdict
    tier.covered = f"rule {offered.name!r}: L1, L2, L3 by Z3 and cvc5"
    if proof.verdict is not Verdict.PROVED:
        model = counter_model(offered)
        tier.reasons[offered.name] = "; ".join(model.as_lines()) if model is not None else "not decided"
    return tier


def _exhaustive(
    pass_name: str, bounds: Bounds, workers: int, folder: Path, seconds: float, progress: Progress | None
) -> Tier:
    tier = Tier("exhaustive", "is it right on every small program?")
    end = time.perf_counter() + seconds
    found = survey(pass_name, bounds, workers=workers, folder=folder, seconds=seconds, progress=progress)
    tier.verdict = found.verdict
    whole = "" if found.complete else f", {found.done} of {found.blocks} blocks"
    tier.covered = f"{found.programs:,} programs ({bounds.spelled}{whole})"
    scripts = scripts_of(found, folder, end) if found.verdict is Verdict.REFUTED else {}
    for refuted in found.found:
        name = name_of(refuted)
        script = scripts.get(name)
        where = f"; {script.path}" if script is not None else ""
        tier.reasons[name] = f"{refuted.verdict.value} on {refuted.count:,} programs: {refuted.fault.value}{where}"
    if not found.complete and found.verdict is Verdict.UNKNOWN:
        tier.reasons["time"] = "not complete: give more with --budget, or go on with `copyproof enumerate`"
    return tier


@dataclass(frozen=True)
class Examined:
    """What is known of a pass on one example: verdict and reason of the graph, the file, and the run; and how it
    departs from the rule that it offers."""

    name: str
    graph: tuple[Verdict, str] | None
    file: tuple[Verdict, str] | None = None
    run: tuple[Verdict, str] | None = None
    departs: str = ""


def examined(pass_name: str, name: str) -> Examined:
    """Proves a pass on one example of the corpus; on a case also the file, and runs that."""
    example = find(name)
    write_back_pass = named_pass(pass_name)
    exported = export(example)
    edge = to_edge(exported, example)
    programs = at_write_back(edge, backend_config(example))
    departs = ""
    try:
        reports = {method: prove_pass(program, write_back_pass) for method, program in programs.items()}
        graph = _worst_of(reports, lambda method, report: f"{method}: {_why(report)}")
        for finding in (f for report in reports.values() for f in report.findings):
            if finding.obligation is Obligation.RULE and finding.verdict is Verdict.REFUTED:
                departs = finding.reasons[0]
    except BadInput as error:
        graph = Verdict.REFUTED, str(error)
    if example not in CASES or example.name in NOT_IN_RUNTIME:
        return Examined(name, graph, departs=departs)
    config = backend_config(example)
    try:
        with standing_in(partial(run_pass, write_back_pass)):
            lowered = lowered_with(edge, config)
            file = _file(example, proofs_of(edge, lowered, config, _TIMEOUT))
    except BadInput as error:
        refuted = Verdict.REFUTED, str(error)
        return Examined(name, graph, refuted, None if name in PIPELINE_WRONG else refuted, departs)
    signature = next(iter(programs.values())).graph_signature
    return Examined(name, graph, file, _run(example, exported, signature, lowered.buffer), departs)


def _file(example: Example, reports: dict[str, Report]) -> tuple[Verdict, str] | None:
    """What the proofs of a file's methods say; None where the pipeline is known to be at fault."""
    stage, _ = PIPELINE_WRONG.get(example.name, (None, ""))
    if any(r.verdict is Verdict.REFUTED and stage is not None and r.stage == stage.value for r in reports.values()):
        return None
    return _worst_of(reports, lambda _, report: f"at fault: {report.stage}: {_why(report)}")


def _worst_of(reports: dict[str, Report], why: Callable[[str, Report], str]) -> tuple[Verdict, str]:
    """The worst verdict of the reports on each method, and why it is not a proof."""
    verdict = worst([report.verdict for report in reports.values()])
    if verdict is Verdict.PROVED:
        return verdict, ""
    return verdict, next(why(method, report) for method, report in reports.items() if report.verdict is verdict)


def _run(
    example: Example, exported: ExportedProgram, signature: ExportGraphSignature, pte: bytes
) -> tuple[Verdict, str] | None:
    """What the calls of a file in the runtime give, beside eager; None where the pipeline is known to be at fault."""
    from copyproof.fuzz.compare import differences
    from copyproof.fuzz.execution import mutated_inputs, run_eager
    from copyproof.fuzz.runtime import RuntimeFailure, run_program

    if example.name in PIPELINE_WRONG:
        return None
    calls = calls_of(example)
    try:
        actual = run_program(pte, calls, example.imports, mutated_inputs(signature))
    except RuntimeFailure as error:
        return Verdict.REFUTED, f"in the runtime: {error}"
    found = differences(run_eager(exported.module(), calls), actual, exact=False)
    return (Verdict.REFUTED, found[0]) if found else (Verdict.PROVED, "")


def _examples(pass_name: str, workers: int, end: float) -> list[Tier]:
    """The tiers over the corpus, whose examples are exported once for all of them."""
    cases = [e.name for e in CASES if e.name not in DOES_NOT_REACH]
    models = [e.name for e in MODELS if not e.slow]
    started = time.perf_counter()
    found = {e.name: e for e in _in_processes(pass_name, [*cases, *models], workers, end)}
    seconds = time.perf_counter() - started
    runs = [name for name in cases if name not in NOT_IN_RUNTIME]
    return [
        _tier("corpus", "is it right on the corpus of models?", models, found, lambda e: e.graph, seconds),
        _tier("cases", "is it right on the hazard cases?", cases, found, lambda e: e.graph, seconds),
        _tier("files", "are the `.pte` files of the cases right?", runs, found, lambda e: e.file, seconds),
        _tier("runs", "do they run as eager does? (no proof)", runs, found, lambda e: e.run, seconds),
    ]


def _tier(
    name: str,
    question: str,
    names: list[str],
    found: dict[str, Examined],
    part: Callable[[Examined], tuple[Verdict, str] | None],
    seconds: float,
) -> Tier:
    tier = Tier(name, question, seconds=seconds)
    verdicts, apart = [], 0
    for example in names:
        if example not in found:
            verdicts.append(Verdict.UNKNOWN)
            tier.reasons[example] = "not looked at within the budget"
            continue
        known = part(found[example])
        if known is None:
            apart += 1
            continue
        verdict, why = known
        verdicts.append(verdict)
        if verdict is not Verdict.PROVED:
            tier.reasons[example] = f"{verdict.value}: {why}"
        if found[example].departs:
            tier.reasons[f"{example} (RULE)"] = found[example].departs
    tier.verdict = worst(verdicts) if verdicts else None
    looked = sum(example in found for example in names)
    tier.covered = f"{looked} of {len(names)} programs" if looked < len(names) else f"{looked} programs"
    tier.covered += f", {apart} of them wrong whatever the pass does" if apart else ""
    return tier


def _in_processes(pass_name: str, names: list[str], workers: int, end: float) -> Iterator[Examined]:
    """What is known of each example, as far as the time reaches."""
    with processes(workers) as pool:
        running = {pool.submit(examined, pass_name, name): name for name in names}
        try:
            for future in as_completed(running, timeout=max(1.0, end - time.perf_counter())):
                try:
                    yield future.result()
                except BrokenProcessPool:
                    raise
                except (Exception, SystemExit) as error:  # a fault of the example's own, of the pass, or of copyproof
                    unknown = Verdict.UNKNOWN, first_line(error)
                    yield Examined(running[future], unknown, unknown, unknown)
        except TimeoutError:
            return


def _timed(tier: Callable[..., Tier], *arguments: Any) -> Tier:
    started = time.perf_counter()
    found = tier(*arguments)
    found.seconds = time.perf_counter() - started
    return found


def _why(report: Report) -> str:
    """The first reason of the worst finding."""
    bad = [f for f in report.findings if f.obligation.safety and f.verdict is report.verdict]
    return f"{bad[0].obligation.name}: {(*bad[0].reasons, 'no reason')[0]}" if bad else ""


def _spelled(result: Any) -> tuple[str, str]:
    """A rewritten program as text: its graph and its signature."""
    graph_module, signature = as_pair(result)
    return str(graph_module.graph), str(signature)
