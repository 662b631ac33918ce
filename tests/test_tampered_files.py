"""Files that were changed by hand so that they compute something else: none is proved.

Each change is one that the runtime runs, most of them with wrong numbers, and that a proof which looks less closely
takes for right.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, schema, to_edge
from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from torch import Tensor, nn
from torch.export import ExportedProgram

from copyproof.impl import reference_pass
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.pipeline import copy_of_edge, standing_in
from copyproof.verify import BadInput, Report, prove_program

UNPLANNED = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.arange(16.0).reshape(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) @ self.w


class State(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.h + x
        self.h.copy_(self.h + x + x)
        return y


class Branch(nn.Module):
    def forward(self, p: Tensor, x: Tensor) -> Tensor:
        return torch.cond(p.any(), lambda x: x + x, lambda x: x * x, (x,)) + x


class Largest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.max(x, 1)[1]


class Row(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.select(x + x, 0, 2)


class Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x).view(16)


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x


SQUARE = (torch.ones(4, 4),)
GATED = (torch.tensor([True]), torch.ones(4))


@cache
def edge_of(module: type[nn.Module], inputs: tuple[Tensor, ...]) -> Any:
    exported = torch.export.export(module(), inputs)
    return to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))


class File:
    """A file taken apart, to be changed."""

    def __init__(self, module: type[nn.Module], inputs: tuple[Tensor, ...] = SQUARE, **config: Any) -> None:
        edge = edge_of(module, inputs)
        self.original: ExportedProgram = edge.exported_program()
        with standing_in(reference_pass):
            lowered = copy_of_edge(edge).to_executorch(
                ExecutorchBackendConfig(**{"emit_mutable_buffer_names": True, **config})
            )
        self.file = deserialize_pte_binary(bytes(lowered.buffer))
        self.plan = self.file.program.execution_plan[0]
        self.calls = self.plan.chains[0].instructions

    def report(self) -> Report:
        return prove_program(self.original, bytes(serialize_pte_binary(self.file)))

    def add(self, value: Any) -> int:
        self.plan.values.append(schema.EValue(val=value))
        return len(self.plan.values) - 1

    def again(self, index: int, **changes: Any) -> int:
        """Another slot like `index`, in the same bytes."""
        value = copy.deepcopy(self.plan.values[index].val)
        for name, change in changes.items():
            setattr(value, name, change)
        return self.add(value)

    def kernel(self, name: str, overload: str, args: list[int]) -> Any:
        self.plan.operators.append(schema.Operator(name=name, overload=overload))
        return schema.Instruction(instr_args=schema.KernelCall(op_index=len(self.plan.operators) - 1, args=args))

    def where(self, what: str) -> int:
        """The first call of an operator of this name, or of this kind."""
        for i, instruction in enumerate(self.calls):
            call = instruction.instr_args
            name = type(call).__name__
            if isinstance(call, schema.KernelCall):
                name = self.plan.operators[call.op_index].name
            if what in name:
                return i
        raise KeyError(what)

    def args(self, what: str) -> list[int]:
        return self.calls[self.where(what)].instr_args.args  # type: ignore[no-any-return]

    def place(self, index: int) -> Any:
        return self.plan.values[index].val.allocation_info


def move(source: int, into: int) -> Any:
    return schema.Instruction(instr_args=schema.MoveCall(move_from=source, move_to=into))


def overwrites_its_operand_outside_of_the_arenas() -> File:
    file = File(Product, memory_planning_pass=UNPLANNED)
    out = file.args("mm")[-1]
    file.args("relu")[1:] = [out, out]
    file.args("mm")[0] = out
    return file


def overwrites_the_caller_s_input() -> File:
    file = File(Product, memory_planning_pass=UNPLANNED)
    x = file.args("relu")[0]
    file.args("relu")[1:] = [x, x]
    file.args("mm")[0] = x
    return file


def moves_the_new_state_into_the_name_of_the_state() -> File:
    file = File(State)
    at = file.where("copy_")
    state, new = file.args("copy_")[:2]
    alias = file.again(state, extra_tensor_info=None)
    for instruction in file.calls[:at]:
        instruction.instr_args.args = [alias if a == state else a for a in instruction.instr_args.args]
    file.calls[at] = move(new, state)
    return file


def moves_something_into_the_name_of_the_input() -> File:
    file = File(Product)
    (x,) = file.plan.inputs
    alias = file.again(x)
    result = file.args("relu")[1]
    for instruction in file.calls:
        instruction.instr_args.args = [alias if a == x else a for a in instruction.instr_args.args]
    file.calls.append(move(result, x))
    return file


def then_branch_falls_into_the_other() -> File:
    file = File(Branch, GATED)
    jumps = [i for i, c in enumerate(file.calls) if isinstance(c.instr_args, schema.JumpFalseCall)]
    slot = file.calls[jumps[1]].instr_args.cond_value_index
    one, zero = file.add(schema.Int(int_val=1)), file.add(schema.Int(int_val=0))
    for jump in jumps:
        file.calls[jump].instr_args.destination_instruction += 1
    end = file.calls[jumps[1]].instr_args.destination_instruction
    file.calls.insert(jumps[1], file.kernel("executorch_prim::eq", "Scalar", [one, one, slot]))
    file.calls.insert(end, file.kernel("executorch_prim::eq", "Scalar", [one, zero, slot]))
    return file


def branches_swapped() -> File:
    file = File(Branch, GATED)
    moves = [c for c in file.calls if isinstance(c.instr_args, schema.MoveCall)]
    adds, muls = file.args("add"), file.args("mul")
    assert len(moves) == 2
    at_add, at_mul = file.where("add"), file.where("mul")
    file.calls[at_add].instr_args.args, file.calls[at_mul].instr_args.args = adds, muls
    first, second = file.calls[at_add].instr_args, file.calls[at_mul].instr_args
    first.op_index, second.op_index = second.op_index, first.op_index
    first.args, second.args = (
        [second.args[0], second.args[1], first.args[-1], first.args[-1]],
        [
            first.args[0],
            first.args[1],
            first.args[2],
            second.args[-1],
            second.args[-1],
        ],
    )
    return file


def results_of_one_call_over_each_other() -> File:
    file = File(Largest)
    values, indices = file.args("max")[3:5]
    file.place(values).memory_offset_low = file.place(indices).memory_offset_low
    return file


def other_first_contents_over_the_state() -> File:
    file = File(State, passes=[InitializedMutableBufferPass(["h"])])
    file.file.mutable_data.append(schema.Buffer(storage=torch.full((4, 4), 7.0).numpy().tobytes()))
    named = next(i for i, v in enumerate(file.plan.values) if getattr(v.val, "extra_tensor_info", None))
    file.again(named, extra_tensor_info=None, data_buffer_idx=len(file.file.mutable_data) - 1)
    return file


def row_by_a_remainder_of_the_runtime() -> File:
    file = File(Row)
    index, low, high = (file.add(schema.Int(int_val=v)) for v in (0, -1, 3))
    file.args("select")[2] = index
    file.calls.insert(file.where("select"), file.kernel("executorch_prim::mod", "Scalar", [low, high, index]))
    return file


def input_with_its_dimensions_in_another_order() -> File:
    file = File(Doubled)
    for index in (*file.plan.inputs, *file.plan.outputs):
        file.plan.values[index].val.dim_order = [1, 0]
    return file


def input_that_is_a_constant() -> File:
    file = File(Product)
    weight = next(i for i in file.args("mm") if file.plan.values[i].val.data_buffer_idx)
    file.plan.inputs[0] = weight
    return file


def view_of_another_size() -> File:
    file = File(Flat, memory_planning_pass=UNPLANNED)
    size = file.plan.values[file.plan.values[file.args("view_copy")[1]].val.items[0]].val
    size.int_val += 1
    return file


def value_without_memory() -> File:
    file = File(Product)
    file.plan.values[file.args("relu")[1]].val.allocation_info = None
    return file


def planned_memory_freed() -> File:
    file = File(State)
    file.calls.append(schema.Instruction(instr_args=schema.FreeCall(value_index=file.args("copy_")[0])))
    return file


def number_that_is_not_put_back() -> File:
    file = File(Row)
    index, one = file.add(schema.Int(int_val=2)), file.add(schema.Int(int_val=1))
    file.args("select")[2] = index
    file.calls.append(file.kernel("executorch_prim::add", "Scalar", [index, one, index]))
    return file


TAMPERED: list[Callable[[], File]] = [
    overwrites_its_operand_outside_of_the_arenas,
    overwrites_the_caller_s_input,
    moves_the_new_state_into_the_name_of_the_state,
    moves_something_into_the_name_of_the_input,
    then_branch_falls_into_the_other,
    branches_swapped,
    results_of_one_call_over_each_other,
    other_first_contents_over_the_state,
    row_by_a_remainder_of_the_runtime,
    input_with_its_dimensions_in_another_order,
    input_that_is_a_constant,
    view_of_another_size,
    value_without_memory,
    planned_memory_freed,
    number_that_is_not_put_back,
]


@pytest.mark.parametrize("tampered", TAMPERED, ids=lambda f: f.__name__)
def test_tampered_file_is_not_proved(tampered: Callable[[], File]) -> None:
    report = tampered().report()
    assert report.verdict is not Verdict.PROVED, report


@pytest.mark.parametrize(
    ("module", "inputs"), [(Product, SQUARE), (State, SQUARE), (Branch, GATED), (Largest, SQUARE), (Row, SQUARE)]
)
@pytest.mark.parametrize("config", [{}, {"memory_planning_pass": MemoryPlanningPass(alloc_graph_input=False)}])
def test_untouched_file_is_proved(module: type[nn.Module], inputs: tuple[Tensor, ...], config: dict[str, Any]) -> None:
    report = File(module, inputs, **config).report()
    assert report.verdict is Verdict.PROVED, report


def test_branch_into_an_output_of_the_caller_s_memory_is_refuted() -> None:
    class Chosen(nn.Module):
        def forward(self, p: Tensor, x: Tensor) -> Tensor:
            chosen: Tensor = torch.cond(p.any(), lambda x: x + x, lambda x: x * x, (x,))
            return chosen

    planned = File(Chosen, GATED)
    assert planned.report().verdict is Verdict.PROVED
    report = File(Chosen, GATED, memory_planning_pass=MemoryPlanningPass(alloc_graph_output=False)).report()
    assert report[Obligation.PLAN].verdict is Verdict.REFUTED, report


def test_state_without_memory_is_unknown() -> None:
    report = File(State, memory_planning_pass=MemoryPlanningPass(alloc_mutable_buffers=False)).report()
    assert report.verdict is Verdict.UNKNOWN, report
    assert "has no memory in the plan" in str(report)


def test_alignment_is_that_of_the_elements() -> None:
    report = File(State, memory_planning_pass=MemoryPlanningPass(alignment=4)).report()
    assert report.verdict is Verdict.PROVED, report


@pytest.mark.parametrize(
    ("name", "overload", "values"),
    [
        ("executorch_prim::add", "Scalar", [1, 1, 1, 1]),
        ("executorch_prim::add", "Scalar", [1, 1]),
        ("aten::relu", "out", [1, 1, 1]),
        ("aten::copy_", "default", [1, 1, 1, 1]),
        ("executorch_prim::et_copy_index", "tensor", [1, 1, 1]),
        ("executorch_prim::et_view", "default", [1, 1, 1]),
        ("aten::sym_size", "int", [1, 1, 1, 1, 1]),
    ],
)
def test_call_that_does_not_fit_its_arguments_is_bad_input_or_not_proved(
    name: str, overload: str, values: list[int]
) -> None:
    file = File(Product)
    file.calls.insert(0, file.kernel(name, overload, [file.add(schema.Int(int_val=v)) for v in values]))
    try:
        assert file.report().verdict is not Verdict.PROVED
    except BadInput as error:
        assert "lower the model again" in str(error)


def test_list_that_holds_itself_is_bad_input() -> None:
    file = File(Product)
    at = file.add(schema.IntList(items=[]))
    file.plan.values[at].val.items.append(at)
    x = file.plan.inputs[0]
    flag, none = file.add(schema.Bool(bool_val=False)), file.add(schema.Null())
    file.calls.insert(0, file.kernel("aten::sum", "IntList_out", [x, at, flag, none, x, x]))
    with pytest.raises(BadInput, match="lower the model again"):
        file.report()
