"""A pass that fixes a size which the export leaves open makes a program for that size: it may not be proved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from executorch.exir import to_edge
from torch.export import Dim, ExportedProgram
from torch.utils._sympy.value_ranges import ValueRanges

from copyproof.impl import reference_pass
from copyproof.spec.obligations import Verdict
from copyproof.spec.pipeline import copy_of
from copyproof.verify import prove, prove_lowering, prove_pass

aten = torch.ops.aten


class _Sums(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("st", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.st.add_(x.sum(0))
        return self.st * 1


def _exported() -> ExportedProgram:
    sizes = ({0: Dim("n", min=2, max=4)},)
    return torch.export.export(_Sums(), (torch.ones(2, 2),), dynamic_shapes=sizes).run_decompositions()


def _input(program: ExportedProgram) -> Any:
    return next(node for node in program.graph.nodes if node.name == "x")


def _read_as(size: Callable[[Any], Any]) -> Callable[[ExportedProgram], Any]:
    """A pass that reads the first rows of x alone, as many as `size` makes of its symbolic number of rows."""

    def rewritten(program: ExportedProgram) -> Any:
        given = _input(program)
        total = next(node for node in program.graph.nodes if node.target is aten.sum.dim_IntList)
        with program.graph.inserting_before(total):
            rows = program.graph.call_function(aten.as_strided.default, (given, [size(given.meta["val"]), 2], [2, 1]))
        total.replace_input_with(given, rows)
        return reference_pass(program)

    return rewritten


def _logs(program: ExportedProgram) -> Any:
    """A correct placement, whose log asks each size for its number."""
    _ = [int(size) for size in _input(program).meta["val"].shape]
    return reference_pass(program)


def _inserts(target: Any, *arguments: Any) -> Callable[[ExportedProgram], Any]:
    """A pass that inserts a dead call which fits some sizes alone."""

    def rewritten(program: ExportedProgram) -> Any:
        given = _input(program)
        with program.graph.inserting_before(given.next):
            program.graph.call_function(target, (given, *arguments))
        return reference_pass(program)

    return rewritten


@pytest.mark.parametrize(
    "size", [lambda x: int(x.shape[0]), lambda x: len(range(x.shape[0])), lambda x: 2 if x.shape[0] < 3 else 4]
)
def test_graph_for_the_example_size_alone_is_not_proved(size: Callable[[Any], Any]) -> None:
    original = _exported()
    report = prove_pass(original, _read_as(size))
    assert report.verdict is not Verdict.PROVED and "was assumed after the export" in str(report), report
    assert prove_pass(_exported(), reference_pass).strict_verdict is Verdict.PROVED


def test_pair_made_elsewhere_by_such_a_pass_is_not_proved() -> None:
    original = _exported()
    result = _read_as(lambda x: int(x.shape[0]))(copy_of(original))
    assert prove(original, result).verdict is not Verdict.PROVED


@pytest.mark.parametrize(
    "inserted",
    [
        _inserts(aten.slice.Tensor, 0, 0, 3),
        _inserts(aten.view.default, [4]),
        _inserts(aten.split.Tensor, 2),
        _inserts(aten.expand.default, [2, 2]),
    ],
)
def test_inserted_call_that_fits_some_sizes_alone_is_not_proved(inserted: Callable[[ExportedProgram], Any]) -> None:
    assert prove_pass(_exported(), inserted).verdict is not Verdict.PROVED


def test_other_bounds_of_a_size_are_another_signature() -> None:
    def narrows(program: ExportedProgram) -> ExportedProgram:
        for symbol in program.range_constraints:
            program.range_constraints[symbol] = ValueRanges(2, 3)
        return program

    assert prove_pass(_exported(), narrows).verdict is Verdict.REFUTED


@pytest.mark.parametrize(("least", "told"), [(1, True), (2, False)])
def test_sizes_of_0_and_1_are_left_out_by_name(least: int, told: bool) -> None:
    sizes = ({0: Dim("n", min=least, max=4)},)
    program = torch.export.export(_Sums(), (torch.ones(2, 2),), dynamic_shapes=sizes).run_decompositions()
    report = prove_pass(program, reference_pass)
    assert report.verdict is Verdict.PROVED and any("are at least 2" in a for a in report.approximations) == told


class _Remainder(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * ((x.shape[0] - 5) % 3)


def test_remainder_of_a_size_is_proved_for_numbers_of_one_sign_by_name() -> None:
    """The runtime gives it the sign of the dividend."""
    sizes = ({0: Dim("n", min=2, max=6)},)
    edge = to_edge(torch.export.export(_Remainder(), (torch.ones(6),), dynamic_shapes=sizes))
    assert any("remainders of integers" in text for text in prove_lowering(edge)["forward"].approximations)


def test_file_planned_for_the_example_size_is_not_proved() -> None:
    report = prove_lowering(to_edge(_exported()), _logs)["forward"]
    assert report.verdict is not Verdict.PROVED and "was assumed after the export" in str(report), report
    assert prove_lowering(to_edge(_exported()), reference_pass)["forward"].verdict is Verdict.PROVED
