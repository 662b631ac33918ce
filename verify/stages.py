"""Which stage of ExecuTorch's pipeline made a wrong program: the program is proved again after each stage.

The Edge program says what is right. Then come the passes before the write-backs, the write-back pass, the passes
after it, the memory plan, and the file. The first stage whose result is refuted is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig
from executorch.exir.program import _program as pipeline
from torch.export import ExportedProgram

from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.pipeline import Stage, at_write_back, copy_of, copy_of_edge, standing_in
from copyproof.verify.lowered import Unmodelled, machine_of
from copyproof.verify.program import Meaning, external_data, prove_program
from copyproof.verify.prover import prove_pass
from copyproof.verify.verdicts import Report

if TYPE_CHECKING:
    from copyproof.spec.pipeline import WriteBackPass


def prove_lowering(
    edge: EdgeProgramManager,
    write_back_pass: WriteBackPass | None = None,
    config: ExecutorchBackendConfig | None = None,
    *,
    timeout: float = 60.0,
) -> dict[str, Report]:
    """Lowers a model to a `.pte` file, and proves each method of the file; a refutation names the stage at fault.

    Args:
        edge: the model in the Edge dialect; it is left as it was.
        write_back_pass: stands where the shipped write-back pass does; None leaves that one there.
        config: how to lower; None takes ExecuTorch's defaults, with the names of mutable buffers.
        timeout: seconds for each obligation.

    Raises:
        BadInput: the pipeline fails on the model, or with the pass.
    """
    config = config or ExecutorchBackendConfig(emit_mutable_buffer_names=True)
    with standing_in(write_back_pass) if write_back_pass is not None else nullcontext():
        return proofs_of(edge, lowered_with(edge, config), config, timeout)


def lowered_with(edge: Any, config: ExecutorchBackendConfig) -> Any:
    """What `to_executorch` makes of a copy of a model, an ExecutorchProgramManager.

    Raises:
        BadInput: a pass, the planner or the emitter fails.
    """
    try:
        # Parameters that require gradients would keep the pipeline from running the graph.
        with torch.no_grad():
            return copy_of_edge(edge).to_executorch(deepcopy(config))
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # whatever a pass raises
        raise BadInput(
            f"to_executorch fails with this pass and configuration: {first_line(error)[:400]}; "
            "try --pass shipped to see whether the pass is at fault"
        ) from error


def proofs_of(edge: Any, lowered: Any, config: Any, timeout: float) -> dict[str, Report]:
    """The report on each method of what `to_executorch` made of a model.

    Args:
        edge: the model in the Edge dialect, as it was before.
        lowered: the ExecutorchProgramManager.
        config: what it was lowered with.
        timeout: seconds for each obligation.
    """
    pte = lowered.buffer
    data: dict[str, bytes] = {}
    with TemporaryDirectory() as folder:
        lowered.write_tensor_data_to_file(folder)
        for file in Path(folder).iterdir():
            data.update(external_data(file.read_bytes()))
    reports = {}
    for method in sorted(edge.methods):
        original = edge.exported_program(method)
        report = prove_program(original, pte, method=method, data=data, timeout=timeout)
        if report.verdict is Verdict.REFUTED:
            refuted = {f.obligation for f in report.findings if f.verdict is Verdict.REFUTED}
            found, undecided = Stage.PLAN, list[str]()
            if refuted != {Obligation.SHARED}:
                found, undecided = _at_fault(edge, lowered.exported_program(method), config, method, timeout)
            doubt = f" ({', '.join(undecided)} could not be decided)" if undecided else ""
            report = replace(report, stage=f"{found.value}{doubt}")
        reports[method] = report
    return reports


def stage_of(edge: Any, pte: bytes, method: str, timeout: float) -> str:
    """The stage that is at fault for a refuted file, where ExecuTorch's own pipeline makes just this file of the model;
    empty where it does not.

    Args:
        edge: the model in the Edge dialect.
        pte: the file.
        method: the method that is refuted.
        timeout: seconds for each obligation.
    """
    for reinplaced in (False, True):
        for named in (True, False):
            config = ExecutorchBackendConfig(run_reinplace_pass=reinplaced, emit_mutable_buffer_names=named)
            try:
                lowered = copy_of_edge(edge).to_executorch(deepcopy(config))
            except Exception:  # this configuration does not take the model, so the file is not of it
                continue
            if bytes(lowered.buffer) == pte:
                report = proofs_of(edge, lowered, config, timeout)[method]
                how = ", with run_reinplace_pass=True" if reinplaced else ""
                return f"{report.stage} of the shipped pipeline{how}, which makes just this file"
    return ""


def _at_fault(edge: Any, lowered: ExportedProgram, config: Any, method: str, timeout: float) -> tuple[Stage, list[str]]:
    """The first stage whose result is refuted, and the stages before it whose result is not known."""
    meaning = Meaning(edge.exported_program(method))
    write_back: Callable[[ExportedProgram], Any] = pipeline.insert_write_back_for_buffers_pass
    at = at_write_back(edge, deepcopy(config))[method]

    def after(planned: bool) -> Verdict:
        return meaning.report(machine_of(lowered, planned), timeout, initial=False).verdict

    stages: Mapping[Stage, Callable[[], Verdict]] = {
        Stage.EARLY: lambda: meaning.same_as(at, timeout),
        Stage.WRITE_BACK: lambda: prove_pass(copy_of(at), write_back, timeout=timeout).verdict,
        Stage.LATER: lambda: after(planned=False),
        Stage.PLAN: lambda: after(planned=True),
    }
    undecided: list[str] = []
    for stage, prove in stages.items():
        try:
            verdict = prove()
        except (BadInput, Unmodelled):
            verdict = Verdict.UNKNOWN
        if verdict is Verdict.REFUTED:
            return stage, undecided
        if verdict is Verdict.UNKNOWN:
            undecided.append(stage.value)
    return Stage.FILE, undecided
