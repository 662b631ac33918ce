"""A lowered graph over its planned arenas, in Python: every tensor lies at the offset that the planner gave it, so that
two of them share bytes just where they do in the runtime. Or without the plan, each in memory of its own: where numbers
differ between the two, the plan is at fault."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from executorch.exir import memory
from executorch.exir.tensor import TensorSpec
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from copyproof.fuzz.execution import Arguments, Call, detached
from copyproof.fuzz.forms import starting_memory
from copyproof.spec.signature import MUTATIONS


class NotPlanned(Exception):
    """The graph has what this form cannot run; the message says what."""


def run_planned(
    program: ExportedProgram,
    calls: Sequence[Arguments],
    carried: Sequence[str] = (),
    start: Mapping[str, Any] | None = None,
    planned: bool = True,
) -> list[Call]:
    """What a lowered program gives for consecutive calls over one set of arenas.

    Args:
        program: what `to_executorch` made, its memory planned; left as it was.
        calls: the arguments of each call.
        carried: parts of the names of the buffers that the file starts with their contents; the other mutable ones
            start at zero, as in a `.pte`.
        start: what some buffers and parameters hold instead, by placeholder; constant ones too.
        planned: whether tensors lie where the plan says; else each that is no view has memory of its own.

    Raises:
        NotPlanned: sizes are not fixed, or there is a loop or a delegate.
        whatever an operator raises.
    """
    places = _Places(program, planned)
    start = start or {}
    specs = program.graph_signature.input_specs
    held = starting_memory(program)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    state: dict[str, Any] = {}
    buffers: dict[str, Tensor] = {}
    for spec, node in zip(specs, nodes, strict=True):
        if spec.kind is not InputKind.USER_INPUT:
            place = places.place(node.meta.get("spec"))
            value = held[spec.arg.name]
            if place is not None:
                if node.name in start:
                    place.copy_(start[node.name])
                elif any(part in node.name for part in carried):
                    place.copy_(value)
                value = place
            elif node.name in start:
                value = start[node.name].clone()
            state[node.name] = value
            if spec.kind in (InputKind.BUFFER, InputKind.PARAMETER):
                buffers[str(spec.target)] = value
    output_specs = program.graph_signature.output_specs
    mutated = [s for s in output_specs if s.kind is OutputKind.USER_INPUT_MUTATION]
    user_outputs = sum(s.kind not in MUTATIONS for s in output_specs)
    results = []
    for arguments in calls:
        given = iter(detached(arguments))
        inputs: list[Any] = []
        names: list[str] = []
        for spec, node in zip(specs, nodes, strict=True):
            if spec.kind is not InputKind.USER_INPUT:
                inputs.append(state[node.name])
                continue
            value = next(given)
            place = places.place(node.meta.get("spec")) if isinstance(value, Tensor) else None
            inputs.append(value if place is None else place.copy_(value))
            names.append(spec.arg.name)
        with torch.no_grad():
            returned = detached(_Run(program.graph_module, places).run(*inputs))
        # Mutated buffers do not come back; the new values of mutated user inputs come first.
        leading = len(returned) - user_outputs
        after = dict(zip(names, detached(arguments), strict=True))
        for spec, value in zip(mutated, returned[leading - len(mutated) :], strict=False):
            after[str(spec.target)] = value
        results.append(Call(returned[leading:], tuple(after.values()), {n: v.clone() for n, v in buffers.items()}))
    return results


def starting_at_zero(program: ExportedProgram, carried: Sequence[str] = ()) -> dict[str, Tensor]:
    """What the buffers start with that a file made of a lowered program does not carry, by placeholder: zeros."""
    places = _Places(program)
    return {
        node.name: torch.zeros_like(place)
        for spec, node in zip(program.graph_signature.input_specs, program.graph.nodes, strict=False)
        if spec.kind is not InputKind.USER_INPUT
        and (place := places.place(node.meta.get("spec"))) is not None
        and not any(part in node.name for part in carried)
    }


class _Places:
    """Where tensors lie: in arenas, as planned, or each in bytes of its own."""

    def __init__(self, program: ExportedProgram, planned: bool = True) -> None:
        sizes = [0]
        for module in program.graph_module.modules():
            if isinstance(module, GraphModule):
                found = module.meta.get("non_const_buffer_sizes") or [0]
                sizes += [0] * (len(found) - len(sizes))
                sizes = [max(a, b) for a, b in zip(sizes, [*found, *[0] * len(sizes)], strict=False)]
        self.planned = planned
        self._arenas = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
        self._own: dict[int, tuple[TensorSpec, Tensor]] = {}

    def place(self, spec: Any) -> Tensor | None:
        """The tensor that lies where a spec says; None where it says nothing."""
        if not isinstance(spec, TensorSpec) or spec.mem_id is None or spec.mem_offset is None:
            return None
        if not all(isinstance(size, int) for size in spec.shape) or spec.is_dynamic_shape_tensor:
            raise NotPlanned("its sizes are not fixed")
        size = torch.Size(spec.shape).numel() * spec.dtype.itemsize
        flat = self._bytes(spec, spec.mem_id, spec.mem_offset, size).view(spec.dtype)
        return flat.as_strided(tuple(spec.shape), tuple(spec.stride), flat.storage_offset())

    def _bytes(self, spec: TensorSpec, number: int, start: int, size: int) -> Tensor:
        if not self.planned:
            return self._own.setdefault(id(spec), (spec, torch.zeros(size, dtype=torch.uint8)))[1]
        arena = self._arenas[number]
        if start + size > len(arena):
            raise NotPlanned(f"a tensor ends at byte {start + size} of an arena of {len(arena)}")
        return arena[start : start + size]


class _Run(Interpreter):
    """Runs a lowered graph; what it allocates lies where `places` says."""

    def __init__(self, graph_module: GraphModule, places: _Places) -> None:
        super().__init__(graph_module, garbage_collect_values=False)
        self._places = places

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function" or n.target is operator.getitem:
            return super().run_node(n)
        if n.target is memory.alloc:
            return pytree.tree_map(self._placed, n.meta["spec"], is_leaf=lambda spec: isinstance(spec, TensorSpec))
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.target is memory.view and self._places.planned:
            # The emitter looks at its plan only, wherever its operand has come to lie (exir/emit/_emitter.py, 1.5.1).
            place = self._places.place(n.meta["spec"])
            if place is not None:
                return place
        if n.target is torch.ops.higher_order.cond:
            condition, then, other, operands = args
            return _Run(then if bool(condition) else other, self._places).run(*operands)
        if isinstance(n.target, torch._ops.HigherOrderOperator):
            raise NotPlanned(f"{n.target.name()} is not run in this form")
        return n.target(*args, **kwargs)  # type: ignore[operator]

    def _placed(self, spec: Any) -> Tensor:
        place = self._places.place(spec)
        if place is None:
            raise NotPlanned("a tensor has no place in an arena")
        return place
