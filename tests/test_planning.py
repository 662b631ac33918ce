"""The reference pass under each memory-planning setting that ExecuTorch's planner accepts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.insert_write_back_for_buffers_pass import insert_write_back_for_buffers_pass
from torch import nn

from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import lower, run_eager
from copyproof.fuzz.runtime import run_program
from copyproof.impl import early_placement, naming_for
from copyproof.verify.corpus import find

from .lowering import edge_of

SETTINGS = [
    dict(alloc_graph_input=i, alloc_graph_output=o, alloc_mutable_buffers=b, share_mutable_buffers=s)
    for i, o, b, s in itertools.product([True, False], repeat=4)
    if b or not s
]


class Stateful(nn.Module):
    """Two buffers and a mutated user input, and temporaries after they are written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(4, 4))
        self.register_buffer("b", torch.zeros(4, 4))

    def forward(self, x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        read = self.a * 2.0 + self.b
        self.a.copy_(self.a * 0.5 + x)
        self.b.add_(read)
        v = u - x
        u.copy_(u * 0.25 + x)
        t = read - v
        parts = [torch.relu(t), torch.neg(t), torch.abs(t), t * t, t + 1.0, t - 1.0]
        return sum(parts[1:], parts[0])


def calls() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [tuple(torch.randn(4, 4, generator=generator) for _ in range(2)) for _ in range(3)]


@pytest.fixture(scope="module")
def edge() -> Any:
    return to_edge(
        torch.export.export(Stateful(), calls()[0], strict=False),
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )


def config_of(setting: dict[str, bool]) -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(**setting),
        emit_mutable_buffer_names=not setting["alloc_mutable_buffers"],
    )


def planned_bytes(pte: bytes) -> int:
    return sum(deserialize_pte_binary(pte).program.execution_plan[0].non_const_buffer_sizes)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: "".join("01"[v] for v in s.values()))
def test_reference_pass_is_right_and_lean_under_every_setting(edge: Any, setting: dict[str, bool]) -> None:
    early = early_placement(outputs=naming_for(config_of(setting).memory_planning_pass))
    pte = lower(edge, early, config_of(setting))
    assert planned_bytes(pte) < planned_bytes(lower(edge, insert_write_back_for_buffers_pass, config_of(setting)))
    # Without planned mutable buffers the caller binds their memory; the Python bindings have no way to.
    if setting["alloc_mutable_buffers"]:
        assert differences(run_eager(Stateful(), calls()), run_program(pte, calls(), mutated=(1,))) == []


def test_placeholder_does_not_lower_where_outputs_get_no_memory(edge: Any) -> None:
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(alloc_graph_output=False))
    assert naming_for(config.memory_planning_pass) == "copy_"
    with pytest.raises(Exception, match="must have a memory id and offset"):
        lower(edge, early_placement(outputs="placeholder"), config)


def test_copy_result_costs_a_stale_tensor_per_buffer_under_the_default() -> None:
    edge = edge_of(find("streaming_wavenet"))
    lean = planned_bytes(lower(edge, early_placement(outputs="placeholder")))
    assert planned_bytes(lower(edge, early_placement(outputs="copy_"))) > lean
