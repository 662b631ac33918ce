"""One stateful module in every form: eager, functional graph, rewritten graph, planned arena, runtime, and what the
prover says of graph and file. `judging.py` says what is wrong."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from torch.export import Dim, ExportedProgram, ExportGraphSignature, export
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from copyproof.fuzz.campaign.failure import Form
from copyproof.fuzz.campaign.pipelines import carried_by, config_of
from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import Call, mutated_inputs, run_eager
from copyproof.fuzz.forms import run_functional, run_rewritten
from copyproof.fuzz.planned import NotPlanned, run_planned, starting_at_zero
from copyproof.fuzz.programs.stateful import Place, Stateful
from copyproof.fuzz.runtime import run_program
from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.obligations import Verdict
from copyproof.spec.pipeline import as_pair, copy_of, standing_in
from copyproof.spec.signature import held
from copyproof.verify.lowered import Unmodelled, machine_of
from copyproof.verify.passes import raised_at, run_pass
from copyproof.verify.program import Meaning, prove_program
from copyproof.verify.prover import prove_pass
from copyproof.verify.verdicts import Report

_STATES = 8
_TIMEOUT = 20.0
_SECONDS = 20.0


@dataclass
class Trial:
    """What one module gave.

    Attributes:
        rejected: why torch.export or to_edge does not take the module, or empty.
        forms: what each form gave, where it ran.
        skipped: why a form did not run.
        pipeline: the pipeline by name.
        fails_to_lower: what to_executorch raises, or empty.
        raised_at: where the pass raised, if it did.
        graph_report, file_report: what the prover says of the rewritten graph and of the file, where there is one.
        original, rewritten: the program before the write-back pass, and what the pass made of it.
        edge_differs: whether the Edge program differs from eager already; None where the functional graph does not.
        from_zero: what the rewritten graph gives where what the file does not carry starts at zero, as it does there.
        elsewhere: whether a refuted file shows other numbers from states that no call reaches; None where not tried.
        unplanned_report: what the prover says of a refuted file's graph where every tensor has memory of its own; None
            where it has no model of it.
        unplanned: what that gives, where the pass is refuted too; None where it does not run.
        seconds: where the time went.
    """

    rejected: str = ""
    forms: dict[Form, list[Call]] = field(default_factory=dict)
    skipped: dict[Form, str] = field(default_factory=dict)
    pipeline: str = ""
    fails_to_lower: str = ""
    raised_at: str = ""
    graph_report: Report | None = None
    file_report: Report | None = None
    original: ExportedProgram | None = None
    rewritten: tuple[GraphModule, ExportGraphSignature] | None = None
    edge_differs: bool | None = None
    from_zero: list[Call] | None = None
    elsewhere: bool | None = None
    unplanned_report: Report | None = None
    unplanned: list[Call] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def alike(self, form: Form) -> bool | None:
        """Whether a form gave what the functional graph did; None where one of them did not run."""
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
    trial = Trial(pipeline=pipeline)
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
    _lowered(trial, edge, calls, write_back_pass, config, module.registers)
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
    config: ExecutorchBackendConfig,
    registers: Sequence[str],
) -> None:
    """Lowers an Edge program, and runs and proves all forms of it."""
    carried = carried_by(config)
    meant = copy_of(edge.exported_program())
    lowered = None

    def taking(program: ExportedProgram) -> Any:
        trial.original = copy_of(program)
        return run_pass(write_back_pass, program)

    with _timed(trial, "to_executorch"), standing_in(taking):
        try:
            lowered = edge.to_executorch(config)
        except (Exception, SystemExit) as error:  # whatever a pass, the planner or the emitter raises
            trial.fails_to_lower = first_line(error)[:300]
            trial.raised_at = raised_at(error) if isinstance(error, BadInput) else ""
    if trial.original is not None:
        _graphs(trial, trial.original, calls, write_back_pass)
        functional = trial.forms.get(Form.FUNCTIONAL)
        if functional is not None and differences(trial.forms[Form.EAGER], functional):
            trial.edge_differs = bool(differences(trial.forms[Form.EAGER], run_functional(meant, calls)))
    if lowered is None:
        return
    _file(trial, meant, lowered, calls, carried, registers)
    if trial.original is not None and trial.rewritten is not None and Form.REWRITTEN in trial.forms:
        _from_zero(trial, trial.original, trial.rewritten, lowered, calls, carried)
    if trial.file_report is not None and trial.file_report.verdict is Verdict.REFUTED:
        trial.elsewhere = _from_other_states(meant, lowered, calls)
        trial.unplanned_report = _proved_unplanned(meant, lowered)
        if trial.graph_report is not None and trial.graph_report.verdict is Verdict.REFUTED:
            with suppress(Exception):  # whatever an operator or the form does not take
                trial.unplanned = run_planned(lowered.exported_program(), calls, carried, planned=False)


def _graphs(
    trial: Trial, original: ExportedProgram, calls: Sequence[tuple[Any, ...]], write_back_pass: Callable[[Any], Any]
) -> None:
    """The functional graph, what the pass makes of it, and the proof."""
    with _timed(trial, "graphs"):
        with _skipping(trial, Form.FUNCTIONAL):
            trial.forms[Form.FUNCTIONAL] = run_functional(original, calls)
        with _skipping(trial, Form.REWRITTEN):
            trial.rewritten = as_pair(run_pass(write_back_pass, copy_of(original)))
            trial.forms[Form.REWRITTEN] = run_rewritten(original, *trial.rewritten, calls)
    if trial.rewritten is not None:
        with _timed(trial, "proof of the graph"):
            trial.graph_report = _reported(lambda: prove_pass(original, write_back_pass, timeout=_TIMEOUT))


def _file(
    trial: Trial,
    meant: ExportedProgram,
    lowered: Any,
    calls: Sequence[tuple[Any, ...]],
    carried: Sequence[str],
    registers: Sequence[str],
) -> None:
    """The lowered graph over its arenas, the file in the runtime, and its proof."""
    with _timed(trial, "planned arena"), _skipping(trial, Form.PLANNED):
        trial.forms[Form.PLANNED] = run_planned(lowered.exported_program(), calls, carried)
    with _timed(trial, "runtime"), _skipping(trial, Form.RUNTIME):
        mutated = mutated_inputs(meant.graph_signature)
        trial.forms[Form.RUNTIME] = run_program(lowered.buffer, calls, registers, mutated, _SECONDS)
    with _timed(trial, "proof of the file"):
        trial.file_report = _reported(lambda: prove_program(meant, bytes(lowered.buffer), timeout=_TIMEOUT))


@contextmanager
def _skipping(trial: Trial, form: Form) -> Iterator[None]:
    """Within this context whatever an operator, the pass or the runtime raises is why the form did not run."""
    try:
        yield
    except Exception as error:
        trial.skipped[form] = first_line(error)[:300]


def _from_zero(
    trial: Trial,
    original: ExportedProgram,
    rewritten: tuple[GraphModule, ExportGraphSignature],
    lowered: Any,
    calls: Sequence[tuple[Any, ...]],
    carried: Sequence[str],
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
        trial.from_zero = run_rewritten(original, *rewritten, calls, start)


def _from_other_states(meant: ExportedProgram, lowered: Any, calls: Sequence[tuple[Any, ...]]) -> bool | None:
    """Whether a lowered program gives other numbers than it means from other contents of its buffers, inputs and
    constant buffers: a proof of a file is about every state that a call may start from, and takes constants that the
    pipeline did not compute with for any values. None where it cannot run so."""
    program = lowered.exported_program()
    kinds = (InputKind.BUFFER, InputKind.PARAMETER)
    buffers = [s for s in program.graph_signature.input_specs if s.kind in kinds and s.target in meant.state_dict]
    generator = torch.Generator().manual_seed(0)

    def other(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or (value.dtype is torch.int64 and value.shape == (1,)):
            return value
        return torch.randint(-9, 10, value.shape, generator=generator).to(value.dtype)

    for _ in range(_STATES):
        given = [pytree.tree_map(other, arguments) for arguments in calls]
        start = {s.arg.name: other(meant.state_dict[s.target]) for s in buffers}
        try:
            if differences(run_functional(meant, given, start), run_planned(program, given, start=start)):
                return True
        except Exception:  # whatever an operator or the form does not take
            return None
    return False


def _proved_unplanned(meant: ExportedProgram, lowered: Any) -> Report | None:
    """What the prover says of a lowered graph before its memory is planned; None where it has no model of it."""
    try:
        machine = machine_of(lowered.exported_program(), planned=False)
        return Meaning(meant).report(machine, _TIMEOUT, initial=False)
    except (BadInput, Unmodelled):
        return None


def _reported(prove: Callable[[], Report]) -> Report | None:
    try:
        return prove()
    except BadInput:
        return None


def quiet() -> None:
    """Lets nothing that is fuzzed log."""
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
