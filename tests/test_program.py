"""Proofs of `.pte` files, against what the runtime does with the same files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from executorch.exir import to_edge
from hypothesis import given, settings
from hypothesis import strategies as st

from copyproof.fuzz.execution import lower, mutated_inputs
from copyproof.fuzz.runtime import RuntimeFailure, run_program
from copyproof.impl import reference_pass
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.pipeline import copy_of_edge, standing_in
from copyproof.verify import BadInput
from copyproof.verify.corpus import CASES, Example, find
from copyproof.verify.corpus.cases import DOES_NOT_REACH, NOT_IN_RUNTIME
from copyproof.verify.corpus.example import backend_config, calls_of
from copyproof.verify.guard import Refuted, guarded
from copyproof.verify.kernels import moved
from copyproof.verify.memory import Arena
from copyproof.verify.program import prove_program

from .known_wrong import after_last_schema_reader
from .lowering import edge_of, file_of, program_of, runs_right

RUNNING = [e for e in CASES if e.name not in DOES_NOT_REACH and e.name not in NOT_IN_RUNTIME]
PIPELINES: dict[str, tuple[Any, dict[str, bool]]] = {
    "shipped": (None, {}),
    "reinplaced": (None, {"run_reinplace_pass": True}),
    "reference": (reference_pass, {}),
    "trusts schemas": (after_last_schema_reader, {}),
    "reference, unnamed buffers": (reference_pass, {"emit_mutable_buffer_names": False}),
    "shipped, unnamed buffers": (None, {"emit_mutable_buffer_names": False}),
}


def file_through(example: Example, pipeline: str) -> bytes:
    write_back_pass, changes = PIPELINES[pipeline]
    return file_of(example, write_back_pass, **changes)


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("example", RUNNING, ids=lambda e: e.name)
def test_verdict_on_the_file_agrees_with_the_runtime(example: Example, pipeline: str) -> None:
    pte = file_through(example, pipeline)
    report = prove_program(program_of(example), pte)
    expected = Verdict.PROVED if runs_right(example, pte) else Verdict.REFUTED
    assert report.verdict is expected, report


def test_lost_write_in_the_file_is_told_in_the_words_of_the_model() -> None:
    report = prove_program(program_of(find("swap_pair")), file_through(find("swap_pair"), "shipped"))
    (reason,) = report[Obligation.STATE].reasons
    assert reason == "buffer 'p' comes from the old contents of 'p' where it should come from the old contents of 'q'"


def test_buffer_that_starts_at_zero_in_the_file_breaks_init() -> None:
    example = find("init_nonzero_with_pass")
    forgotten = replace(example, initialised=())
    pte = lower(edge_of(example), None, backend_config(forgotten))
    report = prove_program(program_of(example), pte)
    assert report[Obligation.INIT].verdict is Verdict.REFUTED
    assert "InitializedMutableBufferPass(['a'])" in report[Obligation.INIT].reasons[0]


def test_bytes_written_over_before_they_are_read_break_plan() -> None:
    example = find("mutations_plus_user_outputs")
    file = deserialized(file_through(example, "reference"))
    planned = planned_in(file)
    first = min(v.allocation_info.memory_offset_low for v in planned)
    for tensor in planned:
        if tensor.extra_tensor_info is None:
            tensor.allocation_info.memory_offset_low = first
    report = prove_program(program_of(example), serialized(file))
    assert report.verdict is Verdict.REFUTED, report
    assert report[Obligation.PLAN].verdict is Verdict.REFUTED or report[Obligation.OUTPUT].verdict is Verdict.REFUTED


def test_file_of_another_model_is_never_proved() -> None:
    names = ("swap_pair", "counter_scalar", "read_then_bump", "view_chain_matmul", "set_state_last_op")
    own = [find(name) for name in names]
    for example in own:
        for other in own:
            if other is example:
                continue
            try:
                report = prove_program(program_of(example), file_through(other, "reference"))
            except BadInput:
                continue
            assert report.verdict is not Verdict.PROVED, (example.name, other.name)


@pytest.mark.parametrize("quarter", [0, 1, 2, 3])
def test_truncated_file_is_bad_input(quarter: int) -> None:
    pte = file_through(find("swap_pair"), "reference")
    with pytest.raises(BadInput):
        prove_program(program_of(find("swap_pair")), pte[: len(pte) * quarter // 4])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_file_gives_a_clear_error_or_a_verdict_and_no_false_proof(data: st.DataObject) -> None:
    example = find("swap_pair")
    whole = file_through(example, "reference")
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        report = prove_program(program_of(example), bytes(damaged))
    except BadInput:
        return
    if report.verdict is Verdict.PROVED and not runs_right(example, bytes(damaged)):
        # The runtime may refuse what a proof of the calls does not look at; it may not compute something else.
        mutated = mutated_inputs(program_of(example).graph_signature)
        with pytest.raises(RuntimeFailure):
            run_program(bytes(damaged), calls_of(example), example.imports, mutated)


def test_other_number_of_inputs_or_another_method_is_bad_input() -> None:
    pte = file_through(find("swap_pair"), "reference")
    with pytest.raises(BadInput, match="takes 1 inputs, the model 2"):
        prove_program(program_of(find("mutations_plus_user_outputs")), pte)
    with pytest.raises(BadInput, match="has the methods forward, expected generate"):
        prove_program(program_of(find("swap_pair")), pte, method="generate")


def test_kernel_that_the_runtime_lacks_is_named_as_an_assumption() -> None:
    example = find("dtype_view_read")
    report = prove_program(program_of(example), file_through(example, "reference"))
    assert any("aten::view_copy.dtype_out" in line for line in report.approximations), report
    usual = prove_program(program_of(find("swap_pair")), file_through(find("swap_pair"), "reference"))
    assert not any("lacks" in line for line in usual.approximations), usual


def test_write_over_a_part_tears_what_owned_the_bytes() -> None:
    arena = Arena(64)
    arena.write(0, 16, "a", "float32", "one")
    arena.write(8, 24, "b", "float32", "two")
    assert arena.read(0, 16) is None
    assert arena.read(8, 24).content == "b"  # type: ignore[union-attr]
    assert [(o.start, o.end) for o in arena.overlapping(0, 64)] == [(0, 8), (8, 24)]


class RowFromItself(torch.nn.Module):
    """A cache whose custom operator reads what it writes: what it leaves is up to the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 1, 1, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.add_(x)
        torch.ops.llama.update_cache(self.cache, self.cache, 0)
        return x + x


def test_a_kernel_given_one_tensor_to_read_and_to_write_is_not_modelled() -> None:
    import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  # registers llama::update_cache

    exported = torch.export.export(RowFromItself(), (torch.ones(1, 1, 1, 2),), strict=True).run_decompositions({})
    report = prove_program(exported, lower(to_edge(exported), None))
    assert report.verdict is Verdict.UNKNOWN
    assert "reads as another operand too" in str(report)


MOVES = {
    "permute_copy": (torch.ops.aten.permute_copy.out, [[1, 0]]),
    "slice_copy": (torch.ops.aten.slice_copy.Tensor_out, [1, 1, 3, 1]),
    "select_copy": (torch.ops.aten.select_copy.int_out, [0, 2]),
    "expand_copy": (torch.ops.aten.expand_copy.out, [[2, 3, 4]]),
    "clone": (torch.ops.aten.clone.out, []),
}


@pytest.mark.parametrize("name", MOVES)
def test_operators_that_move_elements_are_told_element_by_element(name: str) -> None:
    overload, attributes = MOVES[name]
    operand = torch.randn(3, 4)
    taken = moved(overload, [..., *attributes], (3, 4))
    assert taken is not None
    assert torch.equal(operand.flatten()[taken], overload(operand, *attributes, out=torch.empty(0)).flatten())


def test_operators_that_compute_move_nothing() -> None:
    for overload, values in ((torch.ops.aten.neg.out, [...]), (torch.ops.aten.split_copy.Tensor_out, [..., 1, 0])):
        assert moved(overload, values, (3, 4)) is None
    assert moved(torch.ops.aten.slice_copy.Tensor_out, [..., 0, ..., 3, 1], (3, 4)) is None
    assert moved(torch.ops.aten.select_copy.int_out, [..., 5, 1], (3, 4)) is None


class Transposed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + x).t().neg()


@pytest.mark.parametrize(("shape", "verdict"), [((2, 3), Verdict.REFUTED), ((1, 3), Verdict.PROVED)])
def test_a_plan_that_transposes_in_place_is_refuted_and_one_that_moves_nothing_is_not(
    shape: tuple[int, ...], verdict: Verdict
) -> None:
    edge = to_edge(torch.export.export(Transposed(), (torch.ones(shape),), strict=True))
    file = deserialized(lower(edge, None))
    _, doubled, turned, _ = planned_in(file)
    turned.allocation_info.memory_offset_low = doubled.allocation_info.memory_offset_low
    report = prove_program(edge.exported_program(), serialized(file))
    assert report[Obligation.PLAN].verdict is verdict, report


def deserialized(pte: bytes) -> Any:
    from executorch.exir._serialize._program import deserialize_pte_binary

    return deserialize_pte_binary(pte)


def planned_in(file: Any) -> list[Any]:
    """The tensors that the memory plan of a deserialized file gives a place, in the order of their slots."""
    values = file.program.execution_plan[0].values
    return [v.val for v in values if getattr(v.val, "allocation_info", None) is not None]


def serialized(file: Any) -> bytes:
    from executorch.exir._serialize._program import serialize_pte_binary

    return bytes(serialize_pte_binary(file))


def test_guarded_lowering_refuses_a_wrong_program_and_hands_out_a_right_one() -> None:
    wrong, right = copy_of_edge(edge_of(find("swap_pair"))), copy_of_edge(edge_of(find("counter_scalar")))
    with guarded():
        with pytest.raises(Refuted, match="should come from the old contents of 'q'") as caught:
            wrong.to_executorch()
        assert caught.value.report.verdict is Verdict.REFUTED
        assert right.to_executorch().buffer
        with standing_in(reference_pass):
            assert copy_of_edge(edge_of(find("swap_pair"))).to_executorch().buffer
    assert copy_of_edge(edge_of(find("swap_pair"))).to_executorch().buffer


PROVED_MODELS = ["custom_cache", "ring_cache", "streaming_wavenet", "delay_line", "adam", "state_space", "shared_cache"]


@pytest.mark.parametrize("name", PROVED_MODELS)
def test_reference_placement_is_proved_down_to_the_file(name: str) -> None:
    report = prove_program(program_of(find(name)), file_through(find(name), "reference"))
    assert report.verdict is Verdict.PROVED, report


def test_a_mutated_parameter_that_comes_back_as_an_output_is_refuted() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = torch.nn.Parameter(torch.zeros(2), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.p.copy_(self.p)
            return x + x

    edge = to_edge(torch.export.export(Model(), (torch.ones(2),)))
    pte = lower(edge, reference_pass)
    report = prove_program(edge.exported_program(), pte)
    assert report[Obligation.SIGNATURE].verdict is Verdict.REFUTED
    assert "parameter 'p'" in report[Obligation.SIGNATURE].reasons[0]
    (call,) = run_program(pte, [(torch.ones(2),)])
    assert len(call.outputs) == 2
