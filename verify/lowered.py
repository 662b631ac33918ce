"""From the graph that the pipeline hands to the emitter to a machine: out variants, views, planned memory.

The same machine as the `.pte` file that is emitted from it, with node names for labels, and on demand without the plan:
every tensor in memory of its own. So a proof can tell a wrong graph from a wrong plan, and a wrong plan from a wrong
file.
"""

from __future__ import annotations

from typing import Any

import torch
from executorch.exir import memory
from executorch.exir.tensor import TensorSpec
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from copyproof.spec.effects import canonical, effect_of
from copyproof.spec.graph import graph_of, overload_of
from copyproof.spec.signature import held
from copyproof.verify.kernels import delegated, identity_of
from copyproof.verify.machine import (
    Call,
    Delegate,
    Items,
    JumpIfFalse,
    Kernel,
    Machine,
    Move,
    Plain,
    Slot,
    Tensor,
    layout_of,
    type_of,
)
from copyproof.verify.spelling import attribute, raw_bytes


class Unmodelled(Exception):
    """The graph does something that has no machine; the message says what."""


def machine_of(lowered: ExportedProgram, planned: bool) -> Machine:
    """A lowered program as a machine.

    Args:
        lowered: the program as `to_executorch` leaves it (`ExecutorchProgramManager.exported_program()`).
        planned: whether tensors lie where the plan says; else each has memory of its own.

    Raises:
        Unmodelled: it calls something that has no model.
    """
    return _Reader(lowered, planned).machine()


class _Reader:
    def __init__(self, lowered: ExportedProgram, planned: bool) -> None:
        self.lowered = lowered
        self.planned = planned
        sizes = lowered.graph_module.meta.get("non_const_buffer_sizes", [])
        self.built = Machine([], [], [], [], [], [int(size) for size in sizes] if planned else [0])
        self.of_spec: dict[int, int] = {}
        self.keep: list[Any] = []
        self.names: dict[Node, Any] = {}
        self.mutated_parameters = {
            spec.target for spec in lowered.graph_signature.output_specs if spec.kind is OutputKind.PARAMETER_MUTATION
        }
        self.targets: dict[str, Any] = {
            getattr(spec.arg, "name", ""): spec for spec in lowered.graph_signature.input_specs
        }

    def machine(self) -> Machine:
        built = self.built
        returned = self._graph(self.lowered.graph_module, None)
        kinds = [spec.kind for spec in self.lowered.graph_signature.output_specs]
        built.outputs = [
            slot if isinstance(slot, int) else self._slot(Plain(slot))
            for i, slot in enumerate(returned)
            if i >= len(kinds) or kinds[i] is not OutputKind.BUFFER_MUTATION or len(returned) != len(kinds)
        ]
        return built

    def _graph(self, module: GraphModule, given: list[Any] | None) -> list[Any]:
        """Reads a graph; `given` are what its placeholders stand for, None at the top. Returns what it returns."""
        given_left = list(given) if given is not None else None
        for node in graph_of(module).nodes:
            if node.op == "placeholder":
                self.names[node] = self._placeholder(node) if given_left is None else given_left.pop(0)
            elif node.op == "get_attr":
                value = attribute(module, str(node.target))
                self.names[node] = self._slot(_constant(value)) if isinstance(value, torch.Tensor) else value
            elif node.op == "output":
                return [self._stands_for(value) for value in pytree.tree_leaves(node.args)]
            else:
                self.names[node] = self._node(module, node)
        raise Unmodelled("the graph has no output")

    def _placeholder(self, node: Node) -> int:
        spec = node.meta.get("spec")
        given = self.targets.get(node.name)
        name = (given.target or "") if given is not None and given.kind is not InputKind.USER_INPUT else ""
        if not isinstance(spec, TensorSpec):
            slot = self._slot(Plain(spec))
            self.built.inputs.append(slot)
            return slot
        mutated = self.lowered.graph_signature.buffers_to_mutate.values()
        value = held(self.lowered, name)
        state = given is not None and given.kind is InputKind.BUFFER and name in mutated
        if isinstance(value, torch.Tensor) and not state:
            slot = self._slot(_constant(value))
            self.of_spec[id(spec)] = slot
            self.keep.append(spec)
        else:
            first = raw_bytes(value) if state and node.meta.get("et_init_buffer") and value is not None else None
            slot = self._of_spec(spec, name if state else "", first)
        if state:
            self.built.buffers[name] = slot
        elif not name:
            self.built.inputs.append(slot)
        elif name in self.mutated_parameters:
            self.built.buffers[name] = slot
        return slot

    def _node(self, module: GraphModule, node: Node) -> Any:
        target = node.target
        if target is memory.alloc:
            return self._of_specs(node.meta["spec"])
        if target is memory.free:
            return None
        if target is memory.view:
            return self._view(node)
        if getattr(target, "__name__", "") == "getitem" and isinstance(node.args[0], Node):
            return self.names[node.args[0]][node.args[1]]
        if target is torch.ops.higher_order.cond:
            return self._cond(module, node)
        if delegated(node):
            return self._delegate(node)
        overload = overload_of(target)
        if overload is None:
            raise Unmodelled(f"{node.name} calls {target}, which has no machine")
        return self._operator(node, overload)

    def _operator(self, node: Node, overload: torch._ops.OpOverload) -> Any:
        arguments = overload._schema.arguments
        slots: list[int] = []
        for position, argument in enumerate(arguments):
            if argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            elif position < len(node.args):
                value = node.args[position]
            else:
                value = argument.default_value
            slots.append(self._argument(value))
        outs = [slot for slot, argument in zip(slots, arguments, strict=True) if argument.is_out]
        name = overload._schema.name
        if outs:
            self._add(Kernel(name, overload, tuple(slots)), node)
            return outs[0] if len(outs) == 1 else outs
        effect = effect_of(overload)
        if not overload._schema.returns:
            self._add(Kernel(name, overload, tuple(slots)), node)
            return None
        aliased = dict(effect.aliases)
        if effect.writes and all(i in aliased for i in range(len(overload._schema.returns))):
            # What an in-place operator returns is what it wrote.
            self._add(Kernel(name, overload, tuple(slots)), node)
            returned = [slots[aliased[i]] for i in range(len(overload._schema.returns))]
            return returned[0] if len(returned) == 1 else returned
        if isinstance(node.meta.get("val"), torch.Tensor):
            raise Unmodelled(f"{node.name}: {canonical(overload)} returns a tensor without an out argument")
        number = self._slot(Plain(0))
        self._add(Kernel(name, overload, (*slots, number)), node)
        return number

    def _view(self, node: Node) -> int:
        base = self.names[node.args[0]]  # type: ignore[index]
        spec = node.meta["spec"]
        known = self.built.slots[base]
        dynamic = not spec.is_static_shape_tensor
        if isinstance(known, Tensor) and known.place is not None and not dynamic:
            place = (spec.mem_id, spec.mem_offset) if self.planned else known.place
            return self._slot(_tensor(spec, place))
        out = self._slot(_tensor(spec, None))
        sizes = self._argument(node.args[1])
        self._add(Kernel("executorch_prim::et_view", None, (base, sizes, out)), node)
        return out

    def _cond(self, module: GraphModule, node: Node) -> list[int]:
        condition, then, other, operands = node.args
        results = self._of_specs(node.meta["spec"])
        listed = results if isinstance(results, list) else [results]
        given = [self._stands_for(operand) for operand in operands]  # type: ignore[union-attr]
        jump = self._jump(self._argument(condition), node)
        self._branch(then, given, listed, node)
        over = self._jump(self._slot(Plain(False)), node)
        self._land(jump)
        self._branch(other, given, listed, node)
        self._land(over)
        return listed

    def _jump(self, condition: int, node: Node) -> int:
        """Adds a jump, and returns its place, for `_land` to say where it leads."""
        self._add(JumpIfFalse(condition, -1), node)
        return len(self.built.calls) - 1

    def _land(self, jump: int) -> None:
        """Lets a jump lead to the call that is added next."""
        call = self.built.calls[jump]
        assert isinstance(call, JumpIfFalse)
        self.built.calls[jump] = JumpIfFalse(call.condition, len(self.built.calls))

    def _branch(self, module: Any, given: list[Any], results: list[int], node: Node) -> None:
        returned = self._graph(self.names[module], given)
        for source, into in zip(returned, results, strict=True):
            slot = source if isinstance(source, int) else self._slot(Plain(source))
            if slot != into:
                self._add(Move(slot, into), node)

    def _delegate(self, node: Node) -> Any:
        results = self._of_specs(node.meta["spec"])
        operands = [self._argument(value) for value in node.args[1:]]
        flat = results if isinstance(results, list) else [results]
        self._add(Delegate(identity_of(node), (*operands, *flat)), node)
        return results

    def _argument(self, value: Any) -> int:
        if isinstance(value, Node):
            found = self.names[value]
            return self._slot(Items(tuple(found))) if isinstance(found, list) else found
        if isinstance(value, (list, tuple)):
            if all(isinstance(item, (bool, float)) for item in value) and value:
                return self._slot(Plain(list(value)))
            return self._slot(Items(tuple(None if v is None else self._argument(v) for v in value)))
        return self._slot(Plain(value))

    def _stands_for(self, value: Any) -> Any:
        return self.names[value] if isinstance(value, Node) else value

    def _of_specs(self, spec: Any) -> Any:
        """The slot of a spec, or the list of those of several."""
        if isinstance(spec, (list, tuple)):
            return [self._of_specs(one) for one in spec]
        return self._of_spec(spec) if isinstance(spec, TensorSpec) else self._slot(Plain(0))

    def _of_spec(self, spec: TensorSpec, name: str = "", held: bytes | None = None) -> int:
        if id(spec) not in self.of_spec:
            place: tuple[int, int] | None = None
            if not self.planned:
                self.built.arenas.append(spec.nbytes())
                place = (len(self.built.arenas) - 1, 0)
            elif spec.mem_id is not None and spec.mem_offset is not None:
                place = (spec.mem_id, spec.mem_offset)
            self.of_spec[id(spec)] = self._slot(_tensor(spec, place, name, held))
            self.keep.append(spec)
        return self.of_spec[id(spec)]

    def _slot(self, slot: Slot) -> int:
        self.built.slots.append(slot)
        return len(self.built.slots) - 1

    def _add(self, call: Call, node: Node) -> None:
        self.built.calls.append(call)
        self.built.labels.append(node.name)


def _tensor(spec: TensorSpec, place: tuple[int, int] | None, name: str = "", held: bytes | None = None) -> Tensor:
    kind = type_of(spec.shape, spec.dtype, not spec.is_static_shape_tensor)
    order = [int(d) for d in spec.dim_order]
    return Tensor(kind, layout_of(kind.dtype, kind.shape, order), place, held, False, name, tuple(order))


def _constant(value: torch.Tensor) -> Tensor:
    kind = type_of(value.shape, value.dtype)
    return Tensor(kind, kind.dtype, None, raw_bytes(value), True, order=value.dim_order())
