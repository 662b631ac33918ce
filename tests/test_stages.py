"""The stage at fault: each kind of wrong numbers that ExecuTorch's pipeline gives, and the passes that give them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from executorch.exir import to_edge
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from copyproof.impl import reference_pass
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.pipeline import Stage, copy_of_edge
from copyproof.verify import BadInput, Report, prove_lowering, prove_program
from copyproof.verify.corpus import MODELS, Example, find
from copyproof.verify.corpus.cases import PIPELINE_WRONG
from copyproof.verify.corpus.example import backend_config
from copyproof.verify.stages import proofs_of, stage_of

from .known_wrong import after_last_schema_reader, names_the_copy
from .lowering import edge_of, file_of, runs_right


def lowering(example: Example, write_back_pass: Any = None, **changes: Any) -> Report:
    (report,) = prove_lowering(edge_of(example), write_back_pass, replace(backend_config(example), **changes)).values()
    return report


@pytest.mark.parametrize(
    ("name", "write_back_pass", "changes", "stage"),
    [
        ("swap_pair", None, {}, Stage.WRITE_BACK),
        ("reset_from_constant", None, {}, Stage.WRITE_BACK),
        ("value_view_other_buffer", None, {}, Stage.WRITE_BACK),
        ("old_kept_by_cast", None, {}, Stage.WRITE_BACK),
        ("full_slice_then_bump", None, {}, Stage.WRITE_BACK),
        ("cond_two_alive", None, {}, Stage.PLAN),
        ("input_mut_long_tail_matmul", names_the_copy, {}, Stage.PLAN),
        ("view_chain_matmul", after_last_schema_reader, {}, Stage.WRITE_BACK),
        ("llama_2_layers", None, {"run_reinplace_pass": True}, Stage.EARLY),
        ("ring_cache", None, {"run_reinplace_pass": True}, Stage.WRITE_BACK),
    ],
    ids=lambda value: getattr(value, "name", value) if isinstance(value, (str, Stage)) else "",
)
def test_wrong_numbers_are_blamed_on_the_stage_that_makes_them(
    name: str, write_back_pass: Any, changes: dict[str, Any], stage: Stage
) -> None:
    report = lowering(find(name), write_back_pass, **changes)
    assert report.verdict is Verdict.REFUTED, report
    assert report.stage == stage.value, report
    assert not runs_right(find(name), file_of(find(name), write_back_pass, **changes))


class _Parameter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight
        self.weight.add_(1)
        return y


def test_lost_write_to_a_parameter_is_refuted() -> None:
    example = Example("parameter", "test", lambda: (_Parameter(), [(torch.ones(4),)] * 3))
    report = lowering(example)
    assert not runs_right(example, file_of(example, None))
    assert report.verdict is Verdict.REFUTED, report
    assert "'weight'" in str(report[Obligation.STATE].reasons)
    assert report.stage == Stage.WRITE_BACK.value


class _DropsFirstAdd(PassBase):
    """Replaces the first addition by its first operand: a later pass that is wrong."""

    def call(self, graph_module: GraphModule) -> PassResult:
        for node in graph_module.graph.nodes:
            if "add" in str(node.target):
                node.replace_all_uses_with(node.args[0])
                graph_module.graph.erase_node(node)
                break
        graph_module.recompile()
        return PassResult(graph_module, True)


def test_wrong_pass_after_the_write_backs_is_a_later_pass() -> None:
    example = find("read_then_bump")
    report = lowering(example, reference_pass, passes=[_DropsFirstAdd()])
    assert report.verdict is Verdict.REFUTED, report
    assert report.stage == Stage.LATER.value


def test_bytes_changed_after_emission_are_the_file_s_fault() -> None:
    example = find("read_then_bump")
    config = backend_config(example)
    lowered = copy_of_edge(edge_of(example)).to_executorch(config)

    class Damaged:
        buffer = bytes(lowered.buffer)

        def __getattr__(self, name: str) -> Any:
            return getattr(lowered, name)

    assert proofs_of(edge_of(example), Damaged(), config, 60)["forward"].verdict is Verdict.PROVED
    Damaged.buffer = _copies_made_idle(Damaged.buffer)
    report = proofs_of(edge_of(example), Damaged(), config, 60)["forward"]
    assert report.verdict is Verdict.REFUTED, report
    assert report.stage == Stage.FILE.value


def _copies_made_idle(pte: bytes) -> bytes:
    """A file whose `copy_` calls copy each buffer into itself."""
    from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary

    file = deserialize_pte_binary(pte)
    plan = file.program.execution_plan[0]
    for instruction in plan.chains[0].instructions:
        if plan.operators[instruction.instr_args.op_index].name == "aten::copy_":
            instruction.instr_args.args[1] = instruction.instr_args.args[0]
    return bytes(serialize_pte_binary(file))


def test_first_contents_alone_are_the_emitter_s_fault_also_with_parameters() -> None:
    class Started(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("h", torch.ones(4))
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.linear(x) + self.h
            self.h.copy_(y)
            return y

    edge = to_edge(torch.export.export(Started(), (torch.ones(4),)))
    (report,) = prove_lowering(edge).values()
    assert report[Obligation.INIT].verdict is Verdict.REFUTED, report
    assert report.stage == Stage.FILE.value


def test_file_that_the_shipped_pipeline_makes_is_blamed_on_its_stage() -> None:
    example = find("swap_pair")
    pte = file_of(example, None)
    assert stage_of(edge_of(example), pte, "forward", 60).startswith("the write-back pass of the shipped pipeline")
    assert stage_of(edge_of(example), file_of(example, reference_pass), "forward", 60) == ""


def test_pass_that_the_pipeline_cannot_go_on_after_is_bad_input() -> None:
    def breaks(program: ExportedProgram) -> Any:
        raise RuntimeError("no idea")

    with pytest.raises(BadInput, match="to_executorch fails with this pass and configuration: RuntimeError: no idea"):
        lowering(find("read_then_bump"), breaks)


class _Folding(torch.nn.Module):
    """What it adds is computed of constants alone."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.register_buffer("weight", torch.arange(16.0).reshape(4, 4) * scale)
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.weight.sum(0) * 2 + self.state
        self.state.copy_(y)
        return y


def _folding(scale: float) -> Example:
    return Example(f"folding {scale}", "test", lambda: (_Folding(scale), [(torch.ones(4),)] * 3))


def test_constants_that_the_pipeline_folds_are_proved_and_other_constants_refuted() -> None:
    example = _folding(1.0)
    report = lowering(example, do_quant_fusion_and_const_prop=True)
    assert report.verdict is Verdict.PROVED, report
    assert any("constants that the pipeline has computed" in line for line in report.approximations)
    other = file_of(_folding(3.0), None, do_quant_fusion_and_const_prop=True)
    assert prove_program(edge_of(example).exported_program(), other).verdict is Verdict.REFUTED


AT_NIGHT = {"llama_8_layers", "gemma4_text", "gemma4_31b", "attention_sink", "voxtral_encoder"}
"""Models that take more than a few seconds to lower."""

QUICK_MODELS = [
    pytest.param(model, id=model.name, marks=[pytest.mark.slow] if model.name in AT_NIGHT else [])
    for model in MODELS
    if not model.slow
]


@pytest.mark.parametrize("example", QUICK_MODELS)
@pytest.mark.parametrize("changes", [{}, {"run_reinplace_pass": True}], ids=["plain", "reinplaced"])
def test_verdict_on_models_agrees_with_the_runtime(example: Example, changes: dict[str, Any]) -> None:
    pte = file_of(example, None if changes else reference_pass, **changes)
    report = prove_program(edge_of(example).exported_program(), pte)
    assert report.verdict is (Verdict.PROVED if runs_right(example, pte) else Verdict.REFUTED), report
    if not changes:
        assert report.verdict is Verdict.PROVED, report


@pytest.mark.slow
@pytest.mark.parametrize("example", [model for model in MODELS if model.slow], ids=lambda e: e.name)
def test_reference_placement_of_large_models_is_proved_down_to_the_file(example: Example) -> None:
    assert lowering(example, reference_pass).verdict is Verdict.PROVED


@pytest.mark.parametrize("name", PIPELINE_WRONG)
def test_case_that_is_wrong_whatever_the_pass_does_is_blamed_on_its_stage(name: str) -> None:
    report = lowering(find(name), reference_pass)
    assert report.verdict is Verdict.REFUTED, report
    assert report.stage == PIPELINE_WRONG[name][0].value
