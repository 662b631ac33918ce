"""Laws of the prover, the reference pass and real execution, on random small programs and random placements."""

from __future__ import annotations

import operator
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.export import ExportedProgram
from torch.fx import Node

from copyproof.impl import end_placement, reference_pass
from copyproof.spec.effects import EXECUTORCH
from copyproof.spec.obligations import Verdict
from copyproof.spec.program import Role
from copyproof.verify import prove, prove_pass
from copyproof.verify.exhaustive.build import Builder as RecipeBuilder
from copyproof.verify.exhaustive.recipe import Act, Recipe
from copyproof.verify.witness import witness

from .building import Builder, aten

_QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@st.composite
def programs(draw: st.DrawFn, in_place: bool = True) -> ExportedProgram:
    """Up to three buffers of four numbers, a user input, and up to eight steps: arithmetic, schema views, lowered
    views, in-place operators, pieces of a list; any values as new states and outputs."""
    build = Builder()
    buffers = [f"b{i}" for i in range(draw(st.integers(1, 3)))]
    values: list[Node] = [build.buffer(name, 4) for name in buffers]
    values.append(build.input("x", 4))
    kinds = ["add", "mul", "view_copy", "flip", "view", "slice", "split", "clone", "permute"]
    if in_place:
        kinds += ["add_", "copy_"]
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(kinds))
        value = draw(st.sampled_from(values))
        other = draw(st.sampled_from([v for v in values if v.meta["val"].shape == value.meta["val"].shape]))
        if kind in ("add", "mul"):
            values.append(build({"add": aten.add.Tensor, "mul": aten.mul.Tensor}[kind], value, other))
        elif kind in ("add_", "copy_"):
            # Into a fresh tensor or a target: writing x would not be functional.
            if value.name != "x" and not _lies_in(value, "x"):
                values.append(build({"add_": aten.add_.Tensor, "copy_": aten.copy_.default}[kind], value, other))
        elif kind == "view_copy" and value.meta["val"].is_contiguous():
            values.append(build(aten.view_copy.default, value, draw(st.sampled_from([[4], [2, 2]]))))
        elif kind == "view" and value.meta["val"].is_contiguous():
            values.append(build(aten.view.default, value, draw(st.sampled_from([[4], [2, 2]]))))
        elif kind == "flip":
            values.append(build(aten.flip.default, value, [0]))
        elif kind == "clone":
            values.append(build(aten.clone.default, value))
        elif kind == "permute" and value.meta["val"].dim() == 2:
            values.append(build(aten.permute.default, value, [1, 0]))
        elif kind == "slice" and value.meta["val"].dim() == 1:
            half = build(aten.slice.Tensor, value, 0, *draw(st.sampled_from([(0, 2), (1, 3), (2, 4)])))
            values.append(build(aten.cat.default, [half, half]))
        elif kind == "split" and value.meta["val"].dim() == 1:
            pieces = build(aten.split.Tensor, value, 2)
            first, second = build(operator.getitem, pieces, 0), build(operator.getitem, pieces, 1)
            values.append(build(aten.cat.default, [second, first]))
    flat = [v for v in values if v.meta["val"].shape == (4,)]
    news: dict[str, Node] = {}
    for name in buffers:
        free = [v for v in flat if v not in news.values()]
        if free and draw(st.booleans()):
            news[name] = draw(st.sampled_from(free))
    written = [n for n in buffers if n not in news and _is_written(build, n)]
    for name in written:
        free = [v for v in flat if v not in news.values()]
        news[name] = draw(st.sampled_from(free))
    outputs = [v for v in draw(st.lists(st.sampled_from(values), max_size=3)) if v not in news.values()]
    return build.returns(*outputs, **{name: news[name] for name in buffers if name in news})


def _root(node: Node) -> Node:
    while node.op == "call_function" and node.target in (
        aten.view.default,
        aten.permute.default,
        aten.add_.Tensor,
        aten.copy_.default,
    ):
        node = node.all_input_nodes[0]
    return node


def _lies_in(node: Node, name: str) -> bool:
    return _root(node).name == name


def _is_written(build: Builder, name: str) -> bool:
    return any(
        node.target in (aten.add_.Tensor, aten.copy_.default) and _lies_in(node.all_input_nodes[0], name)
        for node in build.graph.nodes
    )


@given(programs(in_place=False))
@_QUICK
def test_reference_pass_is_proved_and_runs_as_the_original_on_functional_programs(
    program: ExportedProgram,
) -> None:
    report = prove_pass(program, reference_pass)
    assert report.strict_verdict is Verdict.PROVED, report
    result: Any = reference_pass(deepcopy(program))
    seen = witness(program, *result, EXECUTORCH, ())
    assert seen.ran and not seen.differs, seen.lines


@given(programs())
@_QUICK
def test_no_placement_of_a_program_with_in_place_steps_is_refuted(program: ExportedProgram) -> None:
    for write_back_pass in (reference_pass, end_placement()):
        report = prove_pass(program, write_back_pass)
        assert report.verdict is not Verdict.REFUTED, report
        if report.verdict is Verdict.PROVED:
            result: Any = write_back_pass(deepcopy(program))
            seen = witness(program, *result, EXECUTORCH, ())
            assert not seen.differs, seen.lines


@given(programs(), st.data())
@_QUICK
def test_what_is_proved_runs_as_the_original_wherever_the_copies_stand(
    program: ExportedProgram, data: st.DataObject
) -> None:
    rewritten: Any = reference_pass(deepcopy(program))
    graph = rewritten[0].graph
    copies = [n for n in graph.nodes if n.target is aten.copy_.default and n.name not in _names(program)]
    for copy in copies:
        steps = [n for n in graph.nodes if n.op in ("call_function", "output") and n is not copy]
        legal = [s for s in steps if _after_operands(copy, s)]
        data.draw(st.sampled_from(legal)).prepend(copy)
    rewritten[0].recompile()
    report = prove(program, rewritten)
    seen = witness(program, *rewritten, EXECUTORCH, ())
    if report.verdict is Verdict.PROVED:
        assert not seen.differs, (str(graph), seen.lines)
    if seen.differs:
        assert report.verdict is Verdict.REFUTED, (str(graph), report)


def _names(program: ExportedProgram) -> set[str]:
    return {node.name for node in program.graph.nodes}


def _after_operands(copy: Node, step: Node) -> bool:
    position = {node: i for i, node in enumerate(copy.graph.nodes)}
    return all(position[operand] < position[step] for operand in copy.all_input_nodes)


def test_random_programs_reach_refutations_too() -> None:
    """The laws above would hold for a prover that never refutes, if no placement were wrong."""
    build = Builder()
    b, x = build.buffer("b0", 4), build.input("x", 4)
    program = build.returns(build(aten.mul.Tensor, b, 2.0), b0=x)
    rewritten: Any = reference_pass(deepcopy(program))
    copy = next(n for n in rewritten[0].graph.nodes if n.target is aten.copy_.default)
    next(n for n in rewritten[0].graph.nodes if n.target is aten.mul.Tensor).prepend(copy)
    rewritten[0].recompile()
    assert prove(program, rewritten).verdict is Verdict.REFUTED
    assert torch.is_tensor(program.state_dict["b0"])


@pytest.mark.parametrize(
    ("roles", "steps", "sources", "outputs"),
    [
        (2, [("lowered-view", 1), ("lowered-view", 3), ("in-place", 3, 4)], (4, 1), ()),
        (
            2,
            [
                ("view", 1),
                ("in-place", 3, 2),
                ("lowered-view", 4),
                ("pure", 4),
                ("in-place", 1, 6),
                ("lowered-view", 5),
            ],
            (4, 8),
            (2, 5),
        ),
        (
            3,
            [("pure-of-two", 1, 2), ("lowered-view", 4), ("lowered-view", 5), ("in-place", 5, 6)],
            (6, 4, 5),
            (3,),
        ),
    ],
    ids=["view of a written view", "re-based past a returned view", "views of a temporary"],
)
def test_reference_pass_protects_lowered_views_of_lowered_views_from_writes(
    roles: int, steps: list[tuple[Any, ...]], sources: tuple[int, ...], outputs: tuple[int, ...]
) -> None:
    acts = tuple(Act(name, tuple(operands)) for name, *operands in steps)
    recipe = Recipe((Role.USER_INPUT,) * roles, acts, sources, outputs)
    report = prove_pass(RecipeBuilder().program(recipe), reference_pass)
    assert report.verdict is Verdict.PROVED, report
