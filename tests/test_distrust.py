"""Programs and passes made to fool the prover: what once was a false PROVED, each kind with its right value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from copyproof.impl import end_placement, reference_pass
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.verify import BadInput, Report, prove, prove_pass

from .building import Builder, aten

_LIBRARY = torch.library.Library("copyproof_test", "FRAGMENT")
_LIBRARY.define("accumulate(Tensor(a!) x, Tensor y) -> ()")
_LIBRARY.define("noisy(Tensor(a!) x) -> ()", tags=(torch.Tag.nondeterministic_seeded,))


@torch.library.impl(_LIBRARY, "accumulate", "CompositeExplicitAutograd")
def _accumulate(x: torch.Tensor, y: torch.Tensor) -> None:
    x.sub_(y)


@torch.library.impl(_LIBRARY, "noisy", "CompositeExplicitAutograd")
def _noisy(x: torch.Tensor) -> None:
    x.add_(torch.rand_like(x))


def edited(edit: Callable[[GraphModule], object], base: Callable[..., Any] = reference_pass) -> Callable[..., Any]:
    """A pass that does what `base` does, and then `edit`."""

    def changed(program: ExportedProgram) -> Any:
        result = base(program)
        edit(program.graph_module)
        program.graph_module.recompile()
        return result

    return changed


def one(graph_module: GraphModule, target: Any) -> Node:
    return next(node for node in graph_module.graph.nodes if node.target is target)


def refuted(report: Report, *obligations: Obligation) -> bool:
    return all(report[o].verdict is Verdict.REFUTED for o in obligations)


def test_arithmetic_on_sizes_is_computed_again_and_not_believed() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("b", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.b.add_(1)
            return x * (x.shape[0] * 2 + 1)

    dynamic = ({0: torch.export.Dim("n")},)
    program = torch.export.export(Model(), (torch.arange(6.0),), dynamic_shapes=dynamic).run_decompositions()

    def three_for_two(graph_module: GraphModule) -> None:
        node = one(graph_module, operator.mul)
        node.args = (node.args[0], 3)

    assert prove_pass(program, reference_pass).strict_verdict is Verdict.PROVED
    assert refuted(prove_pass(program, edited(three_for_two)), Obligation.OUTPUT)


def test_item_by_negative_index_is_the_item() -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    last = build(operator.getitem, build(aten.split.Tensor, b, 2), -1)
    new = build(aten.add.Tensor, b, x)
    program = build.returns(build(aten.mul.Tensor, last, 2.0), b=new)

    def early(graph_module: GraphModule) -> None:
        one(graph_module, aten.add.Tensor).append(one(graph_module, aten.copy_.default))

    assert prove_pass(program, reference_pass).strict_verdict is Verdict.PROVED
    assert refuted(prove_pass(program, edited(early, end_placement())), Obligation.ORDER, Obligation.OUTPUT)


def test_operands_by_keyword_may_not_be_swapped() -> None:
    build = Builder()
    b, x, y = build.buffer("b", 4), build.input("x", 4), build.input("y", 4)
    called = build.graph.call_function(
        auto_functionalized, (torch.ops.copyproof_test.accumulate.default,), {"x": x, "y": y}
    )
    called.meta["val"] = (None, x.meta["val"])
    taken = build.graph.call_function(operator.getitem, (called, 1))
    taken.meta["val"] = x.meta["val"]
    program = build.returns(taken, b=build(aten.add.Tensor, b, taken))

    def swapped(graph_module: GraphModule) -> None:
        node = one(graph_module, auto_functionalized)
        node.kwargs = {"y": node.kwargs["x"], "x": node.kwargs["y"]}

    assert prove_pass(program, reference_pass).strict_verdict is Verdict.PROVED
    assert refuted(prove_pass(program, edited(swapped)), Obligation.OUTPUT, Obligation.STATE)


def test_input_specs_are_part_of_the_signature() -> None:
    build = Builder()
    p, _, x = build.buffer("p", 4), build.buffer("q", 4), build.input("x", 4)
    program = build.returns(build(aten.add.Tensor, p, x))
    other = deepcopy(program)
    specs = other.graph_signature.input_specs
    specs[0].target, specs[1].target = specs[1].target, specs[0].target
    assert refuted(prove(program, other), Obligation.SIGNATURE)


def test_user_input_named_as_a_buffer_is_is_not_taken_for_it() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("x", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(self.x)
            return x * 2

    program = torch.export.export(Model(), (torch.zeros(4),)).run_decompositions()
    graph_module, _ = reference_pass(deepcopy(program))
    assert one(graph_module, aten.copy_.default).all_input_nodes[0].name == "x"
    assert prove_pass(program, reference_pass).strict_verdict is Verdict.PROVED


def test_changed_state_is_seen_also_where_the_pass_returns_only_its_graph() -> None:
    build = Builder()
    b, x, w = build.buffer("b", 4), build.input("x", 4), build.parameter("w", 4)
    program = build.returns(build(aten.mul.Tensor, x, w), b=build(aten.add.Tensor, b, x))

    def heavier(given: ExportedProgram) -> Any:
        given.state_dict["w"].add_(5)
        return reference_pass(given)

    assert refuted(prove_pass(program, heavier), Obligation.FRAME)


@pytest.mark.parametrize("change", ["nan", "dtype", "missing"])
def test_contents_are_compared_bit_by_bit(change: str) -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    build.state["b"].fill_(float("nan"))
    program = build.returns(build(aten.add.Tensor, b, x))
    other = deepcopy(program)
    if change == "nan":
        other.state_dict["b"] = torch.zeros(4)
    elif change == "dtype":
        other.state_dict["b"] = other.state_dict["b"].double()
    else:
        del other.state_dict["b"]
    assert refuted(prove(program, other), Obligation.FRAME)


def test_random_numbers_inside_a_functionalised_custom_operator_keep_their_order() -> None:
    build = Builder()
    x = build.input("x", 4)
    called = build.graph.call_function(auto_functionalized, (torch.ops.copyproof_test.noisy.default,), {"x": x})
    called.meta["val"] = (None, x.meta["val"])
    taken = build.graph.call_function(operator.getitem, (called, 1))
    taken.meta["val"] = x.meta["val"]
    program = build.returns(taken, build(aten.rand_like.default, x))

    def reordered(graph_module: GraphModule) -> None:
        one(graph_module, auto_functionalized).prepend(one(graph_module, aten.rand_like.default))

    assert refuted(prove_pass(program, edited(reordered)), Obligation.EFFECTS)


def test_function_without_a_model_and_operator_without_overload_are_not_proved() -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    program = build.returns(build(aten.mul.Tensor, x, 2.0), b=build(aten.add.Tensor, b, 1.0))

    def increments(graph_module: GraphModule) -> None:
        node = next(n for n in graph_module.graph.nodes if n.name == "x")
        with graph_module.graph.inserting_before(graph_module.graph.output_node()):
            graph_module.graph.call_function(operator.iadd, (node, 1)).meta["val"] = 1

    def zeroes(graph_module: GraphModule) -> None:
        node = next(n for n in graph_module.graph.nodes if n.name == "x")
        with graph_module.graph.inserting_before(graph_module.graph.output_node()):
            graph_module.graph.call_function(aten.zero_, (node,))

    assert prove_pass(program, edited(increments)).verdict is not Verdict.PROVED
    with pytest.raises(BadInput, match="without an overload"):
        prove_pass(program, edited(zeroes))


def test_layout_of_a_clone_matters_where_its_memory_is_looked_at() -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 2, 2)
    clone = build(aten.clone.default, build(aten.t.default, x), memory_format=torch.contiguous_format)
    looked = build(aten.as_strided.default, clone, [3], [1], 0)
    program = build.returns(build(aten.mul.Tensor, looked, 2.0), b=build(aten.add.Tensor, b, 1.0))

    def other_layout(graph_module: GraphModule) -> None:
        one(graph_module, aten.clone.default).kwargs = {}

    assert prove_pass(program, reference_pass).verdict is Verdict.PROVED
    assert refuted(prove_pass(program, edited(other_layout)), Obligation.OUTPUT)


def test_conjugate_view_is_not_its_base() -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    turned = build(aten.mul.Scalar, x, 1j)
    conjugate = build(aten._conj.default, turned)
    program = build.returns(build(aten.mul.Tensor, conjugate, x), b=build(aten.add.Tensor, b, 1.0))

    def dropped(graph_module: GraphModule) -> None:
        node = one(graph_module, aten._conj.default)
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        graph_module.graph.erase_node(node)

    assert refuted(prove_pass(program, edited(dropped)), Obligation.OUTPUT)


def test_shape_changed_in_place_has_no_model() -> None:
    build = Builder()
    x = build.input("x", 2, 2)
    copy = build(aten.clone.default, x)
    view = build(aten.alias.default, copy)
    build(aten.t_.default, copy)
    program = build.returns(build(aten.add.Tensor, view, 1.0))
    assert prove_pass(program, reference_pass).verdict is Verdict.UNKNOWN


def test_two_nodes_of_one_name_are_bad_input() -> None:
    build = Builder()
    x = build.input("x", 4)
    y = build(aten.mul.Tensor, x, 2.0)
    program = build.returns(build(aten.add.Tensor, y, x))

    def renamed(graph_module: GraphModule) -> None:
        one(graph_module, aten.add.Tensor).name = "mul_tensor"

    with pytest.raises(BadInput, match="two nodes of the graph are named mul_tensor"):
        prove_pass(program, edited(renamed))


def test_inserted_node_that_cannot_run_is_bad_input() -> None:
    build = Builder()
    x = build.input("x", 4)
    program = build.returns(build(aten.mul.Tensor, x, 2.0))

    def broken(graph_module: GraphModule) -> None:
        with graph_module.graph.inserting_before(graph_module.graph.output_node()):
            graph_module.graph.call_function(aten.add.Tensor, (None, 1.0))

    with pytest.raises(BadInput, match="cannot run"):
        prove_pass(program, edited(broken))


@pytest.mark.parametrize("fault", ["no output", "bare output"])
def test_graph_without_a_tuple_of_outputs_is_bad_input(fault: str) -> None:
    build = Builder()
    x = build.input("x", 4)
    program = build.returns(build(aten.mul.Tensor, x, 2.0))

    def broken(given: ExportedProgram) -> Any:
        output = given.graph.output_node()
        if fault == "no output":
            given.graph.erase_node(output)
        else:
            output.args = (output.args[0][0],)  # type: ignore[index]
        return given.graph_module, given.graph_signature

    with pytest.raises(BadInput, match="one output node that returns a tuple"):
        prove_pass(program, broken)


def test_running_statistics_are_written_in_training_though_the_schema_does_not_say_so() -> None:
    build = Builder()
    x, mean, variance = build.input("x", 3, 4), build.buffer("m", 4), build.buffer("v", 4)
    build(aten.batch_norm_update_stats.default, x, mean, variance, 0.1)
    program = build.returns(build(aten.mul.Tensor, x, 2.0))
    with pytest.raises(BadInput, match="writes into buffer"):
        prove_pass(program, reference_pass)


def test_parts_written_apart_are_not_a_doubled_write() -> None:
    build = Builder()
    b, x, y = build.buffer("b", 4), build.input("x", 2), build.input("y", 2)
    program = build.returns(build(aten.mul.Tensor, b, 2.0), b=build(aten.cat.default, [x, y]))

    def halves(graph_module: GraphModule) -> None:
        graph, copy = graph_module.graph, one(graph_module, aten.copy_.default)
        for start, source in ((0, "x"), (2, "y")):
            with graph.inserting_before(copy):
                half = graph.call_function(aten.slice.Tensor, (copy.args[0], 0, start, start + 2))
                value = next(n for n in graph.nodes if n.name == source)
                graph.call_function(aten.copy_.default, (half, value))
        graph.erase_node(copy)

    report = prove_pass(program, edited(halves))
    assert report.verdict is not Verdict.REFUTED, report


def test_whole_list_as_an_operand_is_read_in_each_of_its_items() -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    pieces = build(aten.split.Tensor, build(aten.mul.Tensor, x, 3.0), 2)
    program = build.returns(build(aten.cat.default, pieces), b=build(aten.add.Tensor, b, x))

    def writes_the_second(graph_module: GraphModule) -> None:
        with graph_module.graph.inserting_after(one(graph_module, aten.split.Tensor)):
            item = graph_module.graph.call_function(operator.getitem, (one(graph_module, aten.split.Tensor), 1))
        with graph_module.graph.inserting_after(item):
            graph_module.graph.call_function(aten.add_.Tensor, (item, 5))

    assert prove_pass(program, reference_pass).strict_verdict is Verdict.PROVED
    assert refuted(prove_pass(program, edited(writes_the_second)), Obligation.OUTPUT)


@pytest.mark.parametrize("target", [aten.lift.default, aten._unsafe_view.default])
def test_operator_that_may_return_its_argument_undeclared_holds_the_write_back(target: Any) -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    taken = build(target, b, [4]) if target is aten._unsafe_view.default else build(target, b)
    new = build(aten.add.Tensor, b, x)
    program = build.returns(build(aten.mul.Tensor, taken, 2.0), b=new)

    def early(graph_module: GraphModule) -> None:
        one(graph_module, aten.add.Tensor).append(one(graph_module, aten.copy_.default))

    assert prove_pass(program, reference_pass).verdict is Verdict.PROVED
    assert prove_pass(program, edited(early)).verdict is not Verdict.PROVED


def test_size_that_contents_decide_depends_on_them() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            t = x * 1
            n = torch.nonzero(t).shape[0]
            t.add_(1)
            return torch.zeros(n) + 1, t

    program = torch.export.export(Model(), (torch.tensor([0.0, 1, 0, 2]),))

    def early(graph_module: GraphModule) -> None:
        one(graph_module, aten.nonzero.default).prepend(one(graph_module, aten.add_.Tensor))

    assert refuted(prove_pass(program, edited(early)), Obligation.OUTPUT)


def test_tensor_that_stands_in_a_call_is_compared_bit_by_bit() -> None:
    build = Builder()
    x = build.input("x", 4)
    node = build(aten.mul.Tensor, x, 2.0)
    program = build.returns(node)
    node.args = (x, torch.tensor(1.00001))

    def nearly(graph_module: GraphModule) -> None:
        node = one(graph_module, aten.mul.Tensor)
        node.args = (node.args[0], torch.tensor(1.00002))

    assert refuted(prove_pass(program, edited(nearly)), Obligation.OUTPUT)


def test_list_among_the_outputs_is_bad_input() -> None:
    build = Builder()
    x = build.input("x", 4)
    program = build.returns(build(aten.mul.Tensor, x, 2.0))

    def nested(graph_module: GraphModule) -> None:
        output = graph_module.graph.output_node()
        output.args = ((list(output.args[0]),),)  # type: ignore[arg-type]

    with pytest.raises(BadInput, match="is a list"):
        prove_pass(program, edited(nested))


def _hoisted(write: Any, before: Any) -> Callable[[ExportedProgram], Any]:
    """A pass that moves one node before another one, each known by what it calls."""

    def hoisted(program: ExportedProgram) -> Any:
        one(program.graph_module, before).prepend(one(program.graph_module, write))
        return program

    return hoisted


class _LooksAround(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("st", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = self.st + 0
        second = held[2:4]
        looked = torch.as_strided_copy(held[0:2], [4], [1], 0)
        second.add_(x)
        return looked * 1


def test_operator_that_reads_memory_around_its_operand_is_not_proved() -> None:
    program = torch.export.export(_LooksAround(), (torch.tensor([10.0, 20]),))
    report = prove_pass(program, _hoisted(aten.add_.Tensor, aten.as_strided_copy.default))
    assert report.verdict is Verdict.REFUTED and report.witness, report
    assert prove_pass(program, lambda given: given).verdict is not Verdict.REFUTED


@pytest.mark.parametrize("whole", [True, False])
def test_looking_around_a_whole_storage_is_modelled(whole: bool) -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    looked = build(aten.as_strided_copy.default, b if whole else build(aten.slice.Tensor, b, 0, 0, 2), [2], [2], 0)
    program = build.returns(looked, b=build(aten.add.Tensor, b, x))
    assert prove_pass(program, reference_pass).verdict is (Verdict.PROVED if whole else Verdict.UNKNOWN)


class _Scatters(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("st", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        held = self.st + 0
        second = held[2:4]
        scattered = torch.select_scatter(held[0:2], x[0], 0, 0)
        looked = torch.as_strided(scattered, [4], [1], 0)
        second.add_(x)
        return looked * 1, second * 1


def test_scatter_carries_what_is_around_its_operand() -> None:
    program = torch.export.export(_Scatters(), (torch.tensor([10.0, 20]),))
    report = prove_pass(program, _hoisted(aten.add_.Tensor, aten.select_scatter.default))
    assert report.verdict is Verdict.REFUTED and report.witness, report


def test_changed_parameter_is_seen_behind_a_constant_of_its_name() -> None:
    build = Builder()
    b, x, w = build.buffer("b", 4), build.input("x", 4), build.parameter("w", 4)
    program = build.returns(build(aten.mul.Tensor, x, w), b=build(aten.add.Tensor, b, x))

    def hidden(given: ExportedProgram) -> Any:
        given.constants["w"] = given.state_dict["w"].detach().clone()
        given.state_dict["w"] = torch.nn.Parameter(torch.full((4,), 5.0))
        return reference_pass(given)

    assert refuted(prove_pass(program, hidden), Obligation.FRAME)


def test_other_structure_of_results_is_another_signature() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"a": x + 1, "b": x + 2}

    program = torch.export.export(Model(), (torch.ones(2),)).run_decompositions()

    def renamed(given: ExportedProgram) -> ExportedProgram:
        call = given.module_call_graph[0].signature
        assert call is not None
        _, call.out_spec = pytree.tree_flatten({"b": 0, "a": 0})
        return given

    assert refuted(prove_pass(program, renamed), Obligation.SIGNATURE)
    assert prove_pass(program, reference_pass).strict_verdict is Verdict.PROVED
