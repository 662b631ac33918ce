"""Files with several methods, and files whose constants lie elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from torch import Tensor

from copyproof.command.main import main
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.pipeline import Stage, copy_of, copy_of_edge
from copyproof.verify import BadInput, external_data, prove_lowering, prove_program


class _Cached(torch.nn.Module):
    """Two methods on one state: `prefill` sets it, `forward` reads and moves it, `peek` only reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(8))
        self.register_buffer("cache", torch.zeros(4))
        self.linear = torch.nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) + self.cache
        self.cache.add_(x)
        return y

    def prefill(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        self.cache.copy_(x * 2)
        return self.cache + 1

    def peek(self, x: Tensor) -> Tensor:
        return self.cache * x


@cache
def edge(*methods: str) -> Any:
    torch.manual_seed(0)
    programs = {}
    for method in methods:
        module = _Cached()
        module.forward = getattr(module, method)  # type: ignore[method-assign]
        programs[method] = torch.export.export(module, (torch.ones(4),))
    return to_edge(programs)


def config(share: bool) -> ExecutorchBackendConfig:
    planning = MemoryPlanningPass(share_mutable_buffers=share)
    return ExecutorchBackendConfig(emit_mutable_buffer_names=True, memory_planning_pass=planning)


@pytest.mark.parametrize("methods", [("forward", "prefill"), ("forward", "peek")])
def test_state_that_methods_share_is_proved_where_it_lies_in_the_same_bytes(methods: tuple[str, ...]) -> None:
    for report in prove_lowering(edge(*methods), None, config(share=True)).values():
        assert report.verdict is Verdict.PROVED, report
        assert report[Obligation.SHARED].verdict is Verdict.PROVED
        assert not report[Obligation.SHARED].vacuous


@pytest.mark.parametrize("methods", [("forward", "prefill"), ("peek", "prefill")])
def test_state_that_methods_do_not_share_is_the_memory_plan_s_fault(methods: tuple[str, ...]) -> None:
    reports = prove_lowering(edge(*methods), None, config(share=False))
    for report in reports.values():
        assert report[Obligation.STATE].verdict is Verdict.PROVED, report
    report = reports[methods[0]]
    assert report[Obligation.SHARED].verdict is Verdict.REFUTED, report
    assert report.stage == Stage.PLAN.value
    assert "share_mutable_buffers=True" in report[Obligation.SHARED].reasons[0]


def test_each_method_of_a_file_is_proved_against_its_own_model() -> None:
    programs = edge("forward", "prefill")
    pte = copy_of_edge(programs).to_executorch(config(share=True)).buffer
    other = programs.exported_program("prefill")
    assert prove_program(other, pte, method="prefill").verdict is Verdict.PROVED
    assert prove_program(other, pte, method="forward").verdict is Verdict.REFUTED


def test_methods_whose_state_has_no_names_are_unknown() -> None:
    unnamed = ExecutorchBackendConfig(emit_mutable_buffer_names=False)
    for report in prove_lowering(edge("forward", "prefill"), None, unnamed).values():
        assert report[Obligation.SHARED].verdict is Verdict.UNKNOWN, report


def test_program_that_was_lowered_already_is_bad_input_and_a_copy_of_it_before_is_proved() -> None:
    fresh = copy_of_edge(edge("forward"))
    original = copy_of(fresh.exported_program())
    pte = fresh.to_executorch(config(share=False)).buffer
    assert prove_program(original, pte).verdict is Verdict.PROVED
    with pytest.raises(BadInput, match="the original was lowered already"):
        prove_program(fresh.exported_program(), pte)


@cache
def external() -> tuple[Any, bytes, dict[str, bytes]]:
    lowered = copy_of_edge(edge("forward")).to_executorch(
        ExecutorchBackendConfig(emit_mutable_buffer_names=True, external_constants=True)
    )
    return edge("forward").exported_program(), lowered.buffer, {k: bytes(v) for k, v in lowered._tensor_data.items()}


def test_constants_in_an_external_data_file_are_proved_with_it() -> None:
    original, pte, files = external()
    (ptd,) = files.values()
    assert prove_program(original, pte, data=external_data(ptd)).verdict is Verdict.PROVED
    changed = {key: bytes(len(value)) for key, value in external_data(ptd).items()}
    assert prove_program(original, pte, data=changed).verdict is Verdict.REFUTED


def test_missing_external_data_is_bad_input() -> None:
    original, pte, _ = external()
    with pytest.raises(BadInput, match=r"'linear.weight' are in an external data file, which was not given"):
        prove_program(original, pte)
    with pytest.raises(BadInput, match=r"cannot be read as a \.ptd file"):
        external_data(b"nothing")


def test_lowering_with_external_constants_is_proved() -> None:
    (report,) = prove_lowering(
        edge("forward"), None, ExecutorchBackendConfig(emit_mutable_buffer_names=True, external_constants=True)
    ).values()
    assert report.verdict is Verdict.PROVED, report


def test_command_line_takes_external_data_and_methods(tmp_path: Path) -> None:
    module = _Cached()
    model, program, constants = tmp_path / "model.pt2", tmp_path / "program.pte", tmp_path / "program.ptd"
    torch.manual_seed(0)
    exported = torch.export.export(module, (torch.ones(4),))
    torch.export.save(exported, str(model))
    lowered = to_edge(exported).to_executorch(
        ExecutorchBackendConfig(emit_mutable_buffer_names=True, external_constants=True)
    )
    program.write_bytes(lowered.buffer)
    (data,) = lowered._tensor_data.values()
    constants.write_bytes(bytes(data))
    run = CliRunner()
    without = run.invoke(main, ["prove", str(model), str(program)])
    assert without.exit_code == 2
    assert "in an external data file, which was not given; give the .ptd file" in without.stderr
    assert run.invoke(main, ["prove", str(model), str(program), "--data", str(constants)]).exit_code == 0
    other = run.invoke(main, ["prove", str(model), str(program), "--data", str(constants), "--method", "prefill"])
    assert other.exit_code == 2
    assert "has the methods forward, expected prefill" in other.stderr
