"""One stateful module in every form: eager, functional graph, rewritten graph, planned arena, runtime, and what the
prover says of graph and file. Neighbouring forms are compared over all calls; the first two that differ name the stage
that is at fault."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from executorch.exir import to_edge
from torch.export import Dim, ExportedProgram, export
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from copyproof.fuzz.campaign.failure import Failure, Fault, Form, without_names
from copyproof.fuzz.campaign.pipelines import carried_by, config_of
from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import Call, mutated_inputs, run_eager
from copyproof.fuzz.forms import run_functional, run_rewritten
from copyproof.fuzz.planned import NotPlanned, run_planned, starting_at_zero
from copyproof.fuzz.programs.stateful import Place, Stateful
from copyproof.fuzz.runtime import RuntimeFailure, run_program
from copyproof.spec.effects import EXECUTORCH
from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.pipeline import as_pair, copy_of, standing_in
from copyproof.spec.signature import held
from copyproof.verify.exhaustive.screen import ways_open
from copyproof.verify.lowered import Unmodelled, machine_of
from copyproof.verify.pair import pair_of
from copyproof.verify.passes import run_pass
from copyproof.verify.program import Meaning, prove_program
from copyproof.verify.prover import prove_pass
from copyproof.verify.verdicts import Report

CUSTOM_OPS = "executorch.extension.llm.custom_ops.custom_ops"
_SHOWN = 4
_STATES = 8
_TIMEOUT = 20.0


@dataclass
class Trial:
    """What one module gave.

    Attributes:
        rejected: why torch.export or to_edge does not take the module, or empty.
        forms: what each form gave, where it ran.
        skipped: why a form did not run.
        graph, file: what the prover says of the rewritten graph and of the file, where there is one.
        failures: what is wrong.
        original, rewritten: the program before the write-back pass, and what the pass made of it.
        from_zero: what the rewritten graph gives where what the file does not carry starts at zero, as it does there.
        elsewhere: whether a refuted file shows other numbers from states that no call reaches; None where not tried.
        stage: what is at fault for a refuted file after the write-back pass.
        seconds: where the time went.
    """

    rejected: str = ""
    forms: dict[Form, list[Call]] = field(default_factory=dict)
    skipped: dict[Form, str] = field(default_factory=dict)
    graph: Verdict | None = None
    file: Verdict | None = None
    failures: list[Failure] = field(default_factory=list)
    original: ExportedProgram | None = None
    rewritten: Any = None
    from_zero: list[Call] | None = None
    elsewhere: bool | None = None
    stage: Fault | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def alike_in_graph(self) -> bool | None:
        """Whether the rewritten graph gave what the functional one did; None where one did not run."""
        return self._alike(Form.REWRITTEN)

    @property
    def alike_in_file(self) -> bool | None:
        """Whether the file gave what the functional graph did, from any state that was tried; None where it did not
        run."""
        alike = self._alike(Form.RUNTIME)
        return False if alike and (self.elsewhere or self._alike(Form.PLANNED) is False) else alike

    def _alike(self, form: Form) -> bool | None:
        if Form.FUNCTIONAL not in self.forms or form not in self.forms:
            return None
        return not differences(self.forms[Form.FUNCTIONAL], self.forms[form])


@contextmanager
def _timed(trial: Trial, what: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        trial.seconds[what] = trial.seconds.get(what, 0.0) + time.perf_counter() - started


def tried(module: Stateful, write_back_pass: Callable[[Any], Any], pipeline: str = "shipped") -> Trial:
    """Runs a module in every form.

    Args:
        module: the module.
        write_back_pass: stands where the shipped write-back pass does.
        pipeline: the pipeline by name, as of `config_of`.

    Raises:
        BadInput: there is no such pipeline.
    """
    config = config_of(pipeline)
    trial = Trial()
    custom = any(step.name == "update_cache" for step in module.steps)
    imports = (CUSTOM_OPS,) if custom else ()
    built, calls = module.built()
    try:
        with _timed(trial, "eager"):
            trial.forms[Form.EAGER] = run_eager(built, calls, state=True)
        with _timed(trial, "torch.export"):
            exported = _exported(module, built, calls)
        with _timed(trial, "to_edge"):
            edge = to_edge(exported)
    except Exception as error:  # whatever torch.export and to_edge do not take
        trial.rejected = f"{type(error).__name__}: {first_line(error)[:300]}"
        return trial
    _lowered(trial, edge, calls, write_back_pass, pipeline, config, imports)
    return trial


def _exported(module: Stateful, built: torch.nn.Module, calls: Sequence[tuple[Any, ...]]) -> ExportedProgram:
    given = [holder for holder in module.holders if holder.place in (Place.INPUT, Place.POSITION)]
    if not any(holder.sizes for holder in given):
        return export(built, calls[0])
    # Exported at the largest size, so that planned memory holds it.
    sizes = tuple({0: Dim("n", min=2, max=4)} if holder.sizes else None for holder in given)
    return export(built, calls[2], dynamic_shapes=sizes)


def _lowered(
    trial: Trial,
    edge: Any,
    calls: Sequence[tuple[Any, ...]],
    write_back_pass: Callable[[Any], Any],
    pipeline: str,
    config: Any,
    imports: Sequence[str],
) -> None:
    """Lowers an Edge program, runs all forms of it, and compares."""
    carried = carried_by(config)
    meant = copy_of(edge.exported_program())
    lowered, said = None, ""

    def taking(program: ExportedProgram) -> Any:
        trial.original = copy_of(program)
        return run_pass(write_back_pass, program)

    with _timed(trial, "to_executorch"), standing_in(taking):
        try:
            lowered = edge.to_executorch(config)
        except (Exception, SystemExit) as error:  # whatever a pass, the planner or the emitter raises
            said = first_line(error)[:300]
    original = trial.original
    if original is not None:
        with _timed(trial, "graphs"):
            trial.forms[Form.FUNCTIONAL] = run_functional(original, calls)
            try:
                trial.rewritten = as_pair(run_pass(write_back_pass, copy_of(original)))
                trial.forms[Form.REWRITTEN] = run_rewritten(original, *trial.rewritten, calls)
            except Exception as error:  # whatever the pass raises, or what it made when it runs
                trial.skipped[Form.REWRITTEN] = first_line(error)[:300]
    report = file_report = None
    if trial.rewritten is not None and original is not None:
        with _timed(trial, "proof of the graph"):
            report = _reported(lambda: prove_pass(original, write_back_pass, timeout=_TIMEOUT))
        trial.graph = report.verdict if report is not None else None
    if lowered is not None:
        with _timed(trial, "planned arena"):
            try:
                trial.forms[Form.PLANNED] = run_planned(lowered.exported_program(), calls, carried)
            except NotPlanned as error:
                trial.skipped[Form.PLANNED] = str(error)
            except Exception as error:  # whatever an operator raises
                trial.skipped[Form.PLANNED] = first_line(error)[:300]
        with _timed(trial, "runtime"):
            try:
                trial.forms[Form.RUNTIME] = run_program(
                    lowered.buffer, calls, imports, mutated_inputs(meant.graph_signature), seconds=20
                )
            except RuntimeFailure as failure:
                trial.skipped[Form.RUNTIME] = str(failure)
        with _timed(trial, "proof of the file"):
            file_report = _reported(lambda: prove_program(meant, bytes(lowered.buffer), timeout=_TIMEOUT))
        trial.file = file_report.verdict if file_report is not None else None
    if lowered is not None and Form.REWRITTEN in trial.forms and original is not None:
        _from_zero(trial, original, lowered, calls, carried)
    if file_report is not None and file_report.verdict is Verdict.REFUTED:
        trial.elsewhere = _from_other_states(meant, lowered, calls)
        trial.stage = _stage(meant, lowered)
    _judge(trial, report, file_report, pipeline, said)


def _from_zero(
    trial: Trial, original: ExportedProgram, lowered: Any, calls: Sequence[tuple[Any, ...]], carried: Sequence[str]
) -> None:
    """Runs the rewritten graph from what the file starts with, so that its start is told from all else."""
    try:
        start = starting_at_zero(lowered.exported_program(), carried)
    except NotPlanned:
        return
    if any(
        bool(held(original, spec.target).any())
        for spec in original.graph_signature.input_specs
        if spec.arg.name in start
    ):
        trial.from_zero = run_rewritten(original, *trial.rewritten, calls, start)


def _from_other_states(meant: ExportedProgram, lowered: Any, calls: Sequence[tuple[Any, ...]]) -> bool | None:
    """Whether a lowered program gives other numbers than it means from other contents of its buffers and inputs: a proof
    of a file is about every state that a call may start from. None where it cannot run so."""
    program = lowered.exported_program()
    buffers = [s for s in program.graph_signature.input_specs if s.kind is InputKind.BUFFER]
    mutable = {s.target for s in meant.graph_signature.output_specs if s.kind is OutputKind.BUFFER_MUTATION}
    generator = torch.Generator().manual_seed(0)

    def other(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or (value.dtype is torch.int64 and value.shape == (1,)):
            return value
        return torch.randint(-9, 10, value.shape, generator=generator).to(value.dtype)

    for _ in range(_STATES):
        given = [pytree.tree_map(other, arguments) for arguments in calls]
        start = {s.arg.name: other(meant.state_dict[s.target]) for s in buffers if s.target in mutable}
        try:
            if differences(run_functional(meant, given, start), run_planned(program, given, start=start)):
                return True
        except Exception:  # whatever an operator or the form does not take
            return None
    return False


def _stage(meant: ExportedProgram, lowered: Any) -> Fault:
    """Whether a refuted file is wrong before its memory is planned."""
    try:
        machine = machine_of(lowered.exported_program(), planned=False)
        report = Meaning(meant).report(machine, _TIMEOUT, initial=False)
    except (BadInput, Unmodelled):
        return Fault.UNPLANNED
    return Fault.LATER if report.verdict is Verdict.REFUTED else Fault.PLAN


def _reported(prove: Callable[[], Report]) -> Report | None:
    try:
        return prove()
    except BadInput:
        return None


def _judge(trial: Trial, report: Report | None, file_report: Report | None, pipeline: str, said: str) -> None:
    """Adds what is wrong."""
    chain = [form for form in Form if form in trial.forms]
    for left, right in pairwise(chain):
        before = trial.forms[left]
        if left is Form.REWRITTEN and trial.from_zero is not None:
            if lines := differences(before, trial.from_zero):
                fault, name = Fault.FILE.name, Obligation.INIT.name
                found = Failure(left.value, Form.RUNTIME.value, fault, name, "", pipeline, tuple(lines[:_SHOWN]))
                trial.failures.append(found)
            before = trial.from_zero
        if lines := differences(before, trial.forms[right]):
            trial.failures.append(_difference(trial, left, right, lines, report, file_report, pipeline))
    if said and not trial.failures:
        lines = (f"to_executorch fails: {said}",)
        rewritten = Form.REWRITTEN in trial.forms
        fault = Fault.UNPLANNED if rewritten else Fault.PASS if trial.original is not None else Fault.EXPORT
        left = Form.REWRITTEN if rewritten else Form.FUNCTIONAL
        trial.failures.append(
            Failure(
                left.value,
                Form.RUNTIME.value,
                fault.name,
                "",
                f"does not lower: {without_names(said)}",
                pipeline,
                lines,
            )
        )
    elif Form.REWRITTEN in trial.skipped and not trial.failures:
        why = trial.skipped[Form.REWRITTEN]
        shape = f"does not run: {without_names(why)}"
        trial.failures.append(
            Failure(Form.FUNCTIONAL.value, Form.REWRITTEN.value, Fault.PASS.name, "", shape, pipeline, (why,))
        )
    elif Form.RUNTIME in trial.skipped and not trial.failures:
        why = trial.skipped[Form.RUNTIME]
        left = Form.PLANNED if Form.PLANNED in trial.forms else Form.REWRITTEN
        shape = f"no answer: {without_names(why)}"
        trial.failures.append(Failure(left.value, Form.RUNTIME.value, Fault.FILE.name, "", shape, pipeline, (why,)))
    trial.failures += _disagreements(trial, report, file_report, pipeline)


def _difference(
    trial: Trial,
    left: Form,
    right: Form,
    lines: list[str],
    report: Report | None,
    file_report: Report | None,
    pipeline: str,
) -> Failure:
    fault = {
        Form.FUNCTIONAL: Fault.EXPORT,
        Form.REWRITTEN: Fault.PASS,
        Form.PLANNED: Fault.UNPLANNED,
        Form.RUNTIME: Fault.FILE if left is Form.PLANNED else Fault.UNPLANNED,
    }[right]
    obligation, shape = "", _apart(lines)
    if fault is Fault.PASS and report is not None and report.verdict is Verdict.REFUTED:
        obligation, shape = _of_graph(trial)
    elif fault is Fault.UNPLANNED and file_report is not None and file_report.verdict is Verdict.REFUTED:
        obligation, shape = _of_file(file_report)
        fault = trial.stage or fault
    return Failure(left.value, right.value, fault.name, obligation, shape, pipeline, tuple(lines[:_SHOWN]))


def _apart(lines: Sequence[str]) -> str:
    """In what two runs differ, without the numbers."""
    kinds = any(re.search(r"expected \w+\[|values, got", line) for line in lines)
    return "another type or shape" if kinds else "other numbers"


def _of_graph(trial: Trial) -> tuple[str, str]:
    """The obligation that a rewritten graph breaks, and how; of several ways the first one of `screen.Fault`."""
    assert trial.original is not None
    ways = [w for w in ways_open(pair_of(trial.original, *trial.rewritten, EXECUTORCH)) if w.obligation.safety]
    if not ways:
        return Obligation.FRAME.name, ""
    kinds = list(type(ways[0].fault))
    first = min(ways, key=lambda way: kinds.index(way.fault))
    return first.obligation.name, first.fault.value


def _of_file(report: Report) -> tuple[str, str]:
    """The obligation that a file breaks, and how: the first one that is not about its start, if there is one."""
    refuted = [f for f in report.findings if f.verdict is Verdict.REFUTED and f.obligation.safety]
    others = [f for f in refuted if f.obligation is not Obligation.INIT]
    if not others:
        return "", "other numbers"
    finding = others[0]
    for conflict in finding.conflicts:
        write, read, last = (_role(name) for name in (conflict.write, conflict.read, conflict.last_write))
        return finding.obligation.name, f"{write} over {last} before {read}"
    return finding.obligation.name, ""


def _role(name: str) -> str:
    """What a step of a conflict is, without its name."""
    if name.startswith("output"):
        return "an output"
    if re.search(r"\.(then|else)\.", name):
        return "a branch's value"
    found = re.search(r"aten::(copy_|view_copy)\b", name)
    if found:
        return found[1]
    return "a call" if "call" in name else "an input"


def _disagreements(trial: Trial, report: Report | None, file_report: Report | None, pipeline: str) -> Iterator[Failure]:
    """Where the prover says one thing and the runs another: the most serious failures of all."""
    expected = trial.forms.get(Form.FUNCTIONAL)
    for what, judged, form in (("graph", report, Form.REWRITTEN), ("file", file_report, Form.RUNTIME)):
        actual = trial.forms.get(form)
        if judged is None or expected is None or actual is None:
            continue
        found = differences(expected, actual)
        if judged.verdict is Verdict.PROVED and found:
            yield Failure(
                Form.PROVER.value,
                form.value,
                Fault.PROVER.name,
                "",
                f"{what} PROVED, and numbers differ",
                pipeline,
                tuple(found[:_SHOWN]),
            )
        if judged.verdict is Verdict.REFUTED and not found and not _explained(judged) and trial.elsewhere is False:
            refuted = [
                f"{f.obligation.name}: {r}" for f in judged.findings if f.verdict is Verdict.REFUTED for r in f.reasons
            ]
            yield Failure(
                Form.PROVER.value,
                form.value,
                Fault.PROVER.name,
                "",
                f"{what} REFUTED, and no number differs",
                pipeline,
                tuple(refuted[:_SHOWN]),
            )


def _explained(report: Report) -> bool:
    """Whether a refutation showed its own numbers, or needs none (what is counted, or is about the file's start)."""
    refuted = [f for f in report.findings if f.verdict is Verdict.REFUTED and f.obligation.safety]
    shown = any("should" in line or "cannot run" in line for line in report.witness)
    return shown or all(f.structural for f in refuted)


def quiet() -> None:
    """Lets nothing that is fuzzed log."""
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
