"""`prove` and `prove_pass`: from an original and a rewritten graph to a report.

Each safety obligation is one query; what the solver finds is explained in the words of the graph, and then run. A model
of uninterpreted operators is not yet a miscompile: only if the numbers differ (or cannot be run at all) it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx import GraphModule

from copyproof.spec.effects import EXECUTORCH, Chain, Profile
from copyproof.spec.errors import BadInput
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.pipeline import as_pair, carriers, copy_of
from copyproof.spec.rule import Rule
from copyproof.verify import explain, quality, safety
from copyproof.verify.conformance import deviations
from copyproof.verify.contents import changed_contents, changed_interface, shared_memory
from copyproof.verify.pair import Pair, pair_of
from copyproof.verify.passes import rule_of, run_pass
from copyproof.verify.sizes import from_two, narrowed
from copyproof.verify.solver import Answer, Case, Theory
from copyproof.verify.trace import Content
from copyproof.verify.verdicts import Conflict, Finding, Report
from copyproof.verify.witness import Witness, witness

Rewritten = ExportedProgram | tuple[GraphModule, ExportGraphSignature]
_MOST_SHOWN = 5
_OF_A_GRAPH = (
    Obligation.ORDER,
    Obligation.STATE,
    Obligation.OUTPUT,
    Obligation.FRAME,
    Obligation.EFFECTS,
    Obligation.SIGNATURE,
)


def prove(
    original: ExportedProgram,
    rewritten: Rewritten,
    *,
    profile: Profile = EXECUTORCH,
    timeout: float = 60.0,
    keep_queries: Path | None = None,
) -> Report:
    """Whether `rewritten` is right for `original`, obligation by obligation.

    Args:
        original: the program before the write-back pass; functional, or with in-place operations of its own.
        rewritten: what the pass returned.
        profile: how the rewritten graph will be lowered.
        timeout: seconds for each obligation; after that it is UNKNOWN.
        keep_queries: a folder where each query is kept as an SMT-LIB 2 file.

    Raises:
        BadInput: the two cannot be compared (other placeholders), the rewritten graph is no program (it uses a value
            before it is defined, or a node cannot run), or the original writes into an input that its signature does
            not list as mutated.
    """
    carried = rewritten if isinstance(rewritten, ExportedProgram) else None
    return _prove(original, rewritten, (carried,) if carried else (), profile, timeout, keep_queries)


def prove_pass(
    original: ExportedProgram,
    write_back_pass: Callable[[ExportedProgram], Any],
    *,
    profile: Profile = EXECUTORCH,
    timeout: float = 60.0,
    keep_queries: Path | None = None,
) -> Report:
    """Runs `write_back_pass` on a copy of `original` and proves the result; arguments as of `prove`.

    Where the pass has an attribute `rule`, a `Rule`, the report says too whether its write-backs stand where that says.

    Raises:
        BadInput: as `prove`; and the pass raises, or returns something that is no rewritten graph.
    """
    _require_program(original)
    given = copy_of(original)
    result = run_pass(write_back_pass, given)
    return _prove(original, result, carriers(given, result), profile, timeout, keep_queries, rule_of(write_back_pass))


def prove_result(original: ExportedProgram, given: ExportedProgram, result: Any) -> Report:
    """Proves what a pass made of a program, without running it again; otherwise as `prove_pass`.

    Args:
        original: the original.
        given: the program that the pass was given: like the original, and now perhaps rewritten.
        result: what it returned.
    """
    return _prove(original, result, carriers(given, result), EXECUTORCH, 60.0, None)


def _prove(
    original: ExportedProgram,
    rewritten: Any,
    carried: Sequence[ExportedProgram],
    profile: Profile,
    timeout: float,
    keep_queries: Path | None,
    rule: Rule | None = None,
) -> Report:
    """Proves a pair; `carried` are the programs whose parameters, buffers and constants the rewritten graph may run
    over, `rule` the rule that the pass says it follows."""
    started = perf_counter()
    _require_program(original)
    try:
        graph_module, signature = as_pair(rewritten)
    except TypeError as error:
        raise BadInput(str(error)) from error
    pair = pair_of(original, graph_module, signature, profile)
    _require_functional(pair)
    theory = Theory(pair.definitions, timeout, keep_queries)
    findings = [_Question(pair, theory, obligation).finding() for obligation in _OF_A_GRAPH]
    findings += [_earliest(pair, theory), _lifetime(pair, theory)]
    if rule is not None:
        findings.append(_by_rule(pair, rule))
    changed = next(filter(None, (changed_contents(original, program) for program in carried)), "")
    if changed:
        findings = [_refuted(f, changed) if f.obligation is Obligation.FRAME else f for f in findings]
    called = next(filter(None, (changed_interface(original, program) for program in carried)), "")
    if called:
        findings = [_refuted(f, called) if f.obligation is Obligation.SIGNATURE else f for f in findings]
    seen: Witness | None = None
    if any(f.verdict is not Verdict.PROVED for f in findings if f.obligation.safety):
        watch = {
            (read.name, read.operand)
            for write in pair.write_backs
            for read in pair.reads_of.get(write.storage.name, ())
            if read.step > write.step and read.name != "output"
        }
        seen = witness(original, graph_module, signature, profile, watch)
        findings = [_weighed(f, seen) for f in findings]
    for program in (original, *carried):
        if shared := shared_memory(program, graph_module, pair):
            findings = [_doubted(f, shared) for f in findings]
    if assumption := narrowed(original):
        findings = [_doubted(f, assumption) for f in findings]
    statistics = {
        "steps": len(pair.rewritten.steps),
        "inputs": len(pair.rewritten.inputs),
        "targets": len(pair.targets),
        "write_backs": len(pair.write_backs),
        "definitions": len(pair.definitions),
        "seconds": round(perf_counter() - started, 4),
    }
    assumed = [*pair.functional.approximations, *pair.memory.approximations, *from_two(original)]
    approximations = tuple(dict.fromkeys(assumed))
    return Report(tuple(findings), approximations, statistics, seen.lines if seen is not None else ())


@dataclass
class _Question:
    """One safety obligation of a pair: its query, and what the answer means."""

    pair: Pair
    theory: Theory
    obligation: Obligation

    def finding(self) -> Finding:
        triples: list[Any] = []
        if self.obligation is Obligation.ORDER:
            cases, triples = safety.order(self.pair)
        else:
            cases = {
                Obligation.STATE: safety.state,
                Obligation.OUTPUT: safety.output,
                Obligation.FRAME: safety.frame,
                Obligation.EFFECTS: safety.effects,
                Obligation.SIGNATURE: safety.signature,
            }[self.obligation](self.pair)
        answer = self.theory.ask(self.obligation.name, cases)
        if answer.status == "unsat":
            return Finding(self.obligation, Verdict.PROVED, answer.seconds, vacuous=self._vacuous(cases))
        if answer.status == "unknown":
            return _timed_out(self.obligation, answer)
        return self._failed(cases, answer, triples)

    def _failed(self, cases: list[Case], answer: Answer, triples: list[Any]) -> Finding:
        unknown = {**self.pair.functional.unknown, **self.pair.memory.unknown}
        reasons: list[str] = []
        doubts: list[str] = []
        conflicts: list[Conflict] = []
        for index in answer.holding:
            case = cases[index]
            leaves = self.theory.leaves(case.contents) & set(unknown)
            if leaves:
                doubts += [unknown[leaf] for leaf in sorted(leaves)]
                continue
            if len(reasons) < _MOST_SHOWN:
                reason = self._reason(case, triples[index] if triples else None)
                if reason not in reasons:
                    reasons.append(reason)
                if triples and len(conflicts) < _MOST_SHOWN:
                    conflicts.append(explain.conflict(self.pair, *triples[index]))
                elif self.obligation in (Obligation.STATE, Obligation.OUTPUT) and not conflicts:
                    conflicts += explain.conflicts_behind(self.pair, 1)
        if reasons:
            more = len(answer.holding) - len(reasons)
            if more > 0:
                reasons.append(f"and {more} more")
            return Finding(
                self.obligation,
                Verdict.REFUTED,
                answer.seconds,
                tuple(reasons),
                tuple(conflicts),
                structural=any(not cases[index].contents for index in answer.holding) or self._other_effects(),
            )
        return Finding(self.obligation, Verdict.UNKNOWN, answer.seconds, tuple(dict.fromkeys(doubts)))

    def _other_effects(self) -> bool:
        """Whether other operations have effects than in the original, or in another order, whatever their operands."""
        if self.obligation is not Obligation.EFFECTS:
            return False
        tokens = self.pair.memory.tokens, self.pair.functional.tokens
        return any(self._effects(tokens[0][chain], chain) != self._effects(tokens[1][chain], chain) for chain in Chain)

    def _effects(self, token: Content, chain: Chain) -> list[str]:
        """The symbols of the effects up to a token, the last one first."""
        symbols = []
        while token in self.theory.definitions:
            definition = self.theory.definitions[token]
            symbols.append(definition.symbol)
            token = next(
                (
                    operand
                    for operand in reversed(definition.operands)
                    if operand == f"in!{chain.name}"
                    or getattr(self.theory.definitions.get(operand), "symbol", "").endswith(f"!{chain.name}")
                ),
                "",
            )
        return symbols

    def _reason(self, case: Case, triple: Any) -> str:
        about, _, what = case.about.partition("#")
        if self.obligation is Obligation.ORDER:
            write, read = triple
            return f"{read.label} reads {self.pair.role(write.storage.name)} after {write.name} has overwritten it"
        if self.obligation is Obligation.STATE:
            return explain.double_reason(self.pair, about) if what else explain.state_reason(self.pair, about)
        if self.obligation is Obligation.OUTPUT:
            return explain.output_reason(self.pair, int(about), what)
        if self.obligation is Obligation.FRAME:
            return explain.frame_reason(self.pair, about)
        if self.obligation is Obligation.SIGNATURE:
            return explain.signature_reason(self.pair, int(about), what)
        return f"{about} do not happen as often, in the same order, or on the same contents as in the original"

    def _vacuous(self, cases: list[Case]) -> str:
        if cases:
            return ""
        return {
            Obligation.ORDER: "no target is read after its write-back",
            Obligation.STATE: "the program has no target",
            Obligation.OUTPUT: "the program has no user output",
            Obligation.FRAME: "every input is a target",
            Obligation.EFFECTS: "the program has no effects",
            Obligation.SIGNATURE: "the program has no output",
        }[self.obligation]


def _earliest(pair: Pair, theory: Theory) -> Finding:
    cases, bounds = quality.earliest(pair)
    answer = theory.ask("EARLIEST", cases)
    if answer.status == "unknown":
        return _timed_out(Obligation.EARLIEST, answer)
    if answer.status == "unsat":
        vacuous = "" if pair.write_backs else "no write-back was inserted"
        held = tuple(f"{name} is held by: {bound.reason}" for name, bound in bounds.items())
        return Finding(Obligation.EARLIEST, Verdict.PROVED, answer.seconds, held, vacuous=vacuous)
    late = [cases[i].about for i in answer.holding]
    reasons = [f"{name} could stand right after {bounds[name].reason}" for name in late[:_MOST_SHOWN]]
    if len(late) > _MOST_SHOWN:
        reasons.append(f"and {len(late) - _MOST_SHOWN} more")
    return Finding(Obligation.EARLIEST, Verdict.REFUTED, answer.seconds, tuple(reasons))


def _lifetime(pair: Pair, theory: Theory) -> Finding:
    cases, symbolic = quality.lifetime(pair)
    answer = theory.ask("LIFETIME", cases)
    if answer.status == "unknown":
        return _timed_out(Obligation.LIFETIME, answer)
    if answer.status == "sat":
        worst = [cases[i] for i in answer.holding][:_MOST_SHOWN]
        reasons = [
            f"at {c.about}: {c.numbers[0].value} bytes live, {c.numbers[1].value} under end placement" for c in worst
        ]
        return Finding(Obligation.LIFETIME, Verdict.REFUTED, answer.seconds, tuple(reasons))
    if symbolic:
        return Finding(Obligation.LIFETIME, Verdict.UNKNOWN, answer.seconds, tuple(symbolic[:_MOST_SHOWN]))
    vacuous = "" if pair.write_backs else "no write-back was inserted"
    return Finding(Obligation.LIFETIME, Verdict.PROVED, answer.seconds, vacuous=vacuous)


def _by_rule(pair: Pair, rule: Rule) -> Finding:
    started = perf_counter()
    departures = deviations(pair, rule)
    vacuous = "" if pair.write_backs else "no write-back was inserted"
    verdict = Verdict.REFUTED if departures else Verdict.PROVED
    reasons = tuple(departures[:_MOST_SHOWN])
    return Finding(Obligation.RULE, verdict, perf_counter() - started, reasons, vacuous=vacuous)


def _timed_out(obligation: Obligation, answer: Answer) -> Finding:
    reason = f"the solver gave up after {answer.seconds:.1f} s; raise --timeout"
    return Finding(obligation, Verdict.UNKNOWN, answer.seconds, (reason,))


def _weighed(finding: Finding, seen: Witness) -> Finding:
    """A finding in the light of a run: numbers that differ refute; a model that no run shows refutes nothing."""
    differing = {
        Obligation.OUTPUT: seen.outputs,
        Obligation.STATE: seen.targets or seen.failure,
        Obligation.FRAME: seen.frame,
        Obligation.EFFECTS: seen.differs,
        Obligation.ORDER: seen.reads or seen.outputs or seen.targets,
    }.get(finding.obligation)
    if differing is None or finding.verdict is Verdict.PROVED:
        return finding
    if differing and (finding.obligation is not Obligation.EFFECTS or finding.verdict is Verdict.REFUTED):
        return replace(finding, verdict=Verdict.REFUTED)
    if finding.verdict is Verdict.REFUTED and seen.ran and not finding.structural:
        doubt = f"the proof fails for uninterpreted operators, but {seen.ran} runs showed no difference"
        return replace(finding, verdict=Verdict.UNKNOWN, reasons=(*finding.reasons, doubt))
    return finding


def _doubted(finding: Finding, reason: str) -> Finding:
    if finding.verdict is Verdict.PROVED and finding.obligation.safety:
        return replace(finding, verdict=Verdict.UNKNOWN, reasons=(*finding.reasons, reason))
    return finding


def _require_functional(pair: Pair) -> None:
    """Raises BadInput where the original writes into an input that its signature does not list as mutated."""
    for write in pair.functional.writes:
        if not write.storage.fresh and write.storage.name not in pair.targets:
            raise BadInput(
                f"the original is not functional: {write.name} writes into {pair.role(write.storage.name)}, which "
                "its signature does not list as mutated; call run_decompositions() on it first"
            )


def _require_program(original: Any) -> None:
    """Raises BadInput where the original is no ExportedProgram."""
    if not isinstance(original, ExportedProgram):
        raise BadInput(
            f"the original is a {type(original).__name__}, expected an ExportedProgram; "
            "copyproof.spec.pipeline.at_write_back gives the one of each method of an EdgeProgramManager"
        )


def _refuted(finding: Finding, reason: str) -> Finding:
    reasons = (*finding.reasons, reason)
    return replace(finding, verdict=Verdict.REFUTED, reasons=reasons, structural=True, vacuous="")
