"""Calls spelled by their out variants: a graph's operators and a file's kernels get the same function symbols."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from executorch.exir.operator.convert import to_out_variant
from executorch.exir.tensor import scalar_type_enum
from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from copyproof.spec.effects import NO_LOWERING, canonical, family, functional_name, only_asserts
from copyproof.spec.errors import BadInput
from copyproof.spec.graph import action_of, overload_of
from copyproof.spec.program import Branches, Input, Loop, Program, Step, TensorType
from copyproof.spec.runtime_kernels import refused
from copyproof.verify.fakes import tensor_type
from copyproof.verify.frontend import Reader
from copyproof.verify.spelling import arguments_of, attribute, content_of, delegate_identity, digest_of, spelled

REFUSED = "refused!"
"""Begins the symbol of a call that the runtime refuses."""
VIEW = torch.ops.aten.view_copy.default
"""The operator that the pipeline turns into views."""


@cache
def kernel_of(overload: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The out variant of an operator, that of its functional form for an in-place one; the operator itself where there
    is none."""
    if any(argument.is_out for argument in overload._schema.arguments):
        return overload
    name = functional_name(canonical(overload))
    if name != canonical(overload):
        namespace, base, variant = name.split(".")
        overload = getattr(getattr(getattr(torch.ops, namespace), base), variant, overload)
    try:
        return to_out_variant(overload)[0]
    except Exception:  # executorch finds no variant whose schema fits; by name there may still be one
        packet = overload.overloadpacket
        for name in (f"{overload._overloadname}_out", "out"):
            if name in packet.overloads():
                return getattr(packet, name)
        return overload


def spell_values(overload: torch._ops.OpOverload, values: list[Any]) -> tuple[str, bool]:
    """The symbol of a call with these argument values (tensors as `Ellipsis`), and whether it is in place.

    Args:
        overload: any variant of the operator.
        values: by its schema, out arguments as None.
    """
    kernel = kernel_of(overload)
    in_place = kernel is not overload and functional_name(canonical(overload)) != canonical(overload)
    by_name = {a.name: v for a, v in zip(overload._schema.arguments, values, strict=False)}
    parts = []
    for argument in kernel._schema.arguments:
        if argument.is_out:
            continue
        value = by_name.get(argument.name, argument.default_value)
        parts.append(_text(value, str(argument.type)))
    return f"{canonical(kernel)}({','.join(parts)})", in_place


def moved(overload: torch._ops.OpOverload, values: list[Any], shape: tuple[int, ...]) -> torch.Tensor | None:
    """Which element of its first operand each element of a call's result is, both counted in row-major order; None for
    operators that are not known to only move elements (those that copy what a view operator looks at do, and clone),
    and for calls that cannot run.

    Args:
        overload: the out variant of an operator.
        values: the argument values by its schema, the first operand as `Ellipsis`, out arguments as anything.
        shape: that of the first operand.
    """
    name = family(canonical(overload))
    if name != "aten.clone" and not _copies_a_view(name, overload._overloadname):
        return None
    named = {a.name: v for a, v in zip(overload._schema.arguments, values, strict=False) if not a.is_out}
    first = overload._schema.arguments[0].name
    if any(value is ... for name, given in named.items() if name != first for value in pytree.tree_leaves(given)):
        return None
    named[first] = torch.arange(math.prod(shape)).reshape(shape)
    outs = {a.name: torch.empty(0, dtype=torch.int64) for a in overload._schema.arguments if a.is_out}
    try:
        return overload(**named, **outs).flatten()
    except (RuntimeError, TypeError, IndexError):  # what cannot run, or has no out argument
        return None


def _copies_a_view(name: str, out_variant: str) -> bool:
    """Whether `name` is `aten.X_copy`, where X in the same variant is a view operator with one result."""
    if not (name.startswith("aten.") and name.endswith("_copy")):
        return False
    packet = getattr(torch.ops.aten, name.removeprefix("aten.").removesuffix("_copy"), None)
    view = getattr(packet, out_variant.removesuffix("out").rstrip("_") or "default", None)
    return view is not None and [str(r.type) for r in view._schema.returns if r.alias_info is not None] == ["Tensor"]


def spell_node(name: str, node: Node, overload: torch._ops.OpOverload | None) -> str:
    """The symbol of a node of a graph, the same as that of the kernel call that it becomes."""
    if delegated(node):
        values = [... if isinstance(value, Node) else value for value in node.args[1:]]
        return f"{identity_of(node)}({','.join(_text(value, '') for value in values)})"
    if overload is None and not isinstance(node.target, torch._ops.HigherOrderOperator):
        values = [... if isinstance(value, Node) else value for value in node.args]
        return spell_number(name.rsplit(".", 1)[-1], values).partition("<")[0]
    if overload is None:
        return spelled(name, node, overload)
    values = pytree.tree_map_only(Node, lambda n: ..., arguments_of(node, overload))
    return spell_values(overload, values)[0]


def spell_number(base: str, values: list[Any]) -> str:
    """The symbol of a function of numbers, `Ellipsis` where a computed one stands."""
    types = ";".join("number" for value in values if value is ...)
    return f"number.{base}({','.join(_text(value, '') for value in values)})<{types}>#0"


def kernel_program_of(exported: ExportedProgram) -> Program:
    """The functional meaning of an exported program as files have it: operators spelled by their out variants, sizes at
    their upper bounds, branches and loops of fixed length evaluated through their subgraphs, assertions left out."""
    return _bounded(_KernelReader(exported, exported.graph_module, exported.graph_signature).program())


def asserts(exported: ExportedProgram) -> bool:
    """Whether a program has assertions."""
    return any(_asserts(node) for node in exported.graph.nodes)


def delegates_of(exported: ExportedProgram) -> dict[str, int]:
    """How many operands each delegate of a program takes, by identity."""
    return {
        identity_of(node): len(node.args) - 1
        for module in exported.graph_module.modules()
        if isinstance(module, GraphModule)
        for node in module.graph.nodes
        if delegated(node)
    }


class _KernelReader(Reader):
    def __init__(self, original: ExportedProgram, graph_module: GraphModule, signature: ExportGraphSignature) -> None:
        super().__init__(original, graph_module, signature, NO_LOWERING, {}, spell_node)

    def _constant(self, node: Node, inputs: list[Input]) -> None:
        known = len(inputs)
        super()._constant(node, inputs)
        held = attribute(self.graph_module, str(node.target))
        if len(inputs) > known:
            content = content_of(held) if isinstance(held, torch.Tensor) else f"object!{digest_of(held)}"
            inputs[-1] = replace(inputs[-1], content=content)

    def _step(self, node: Node) -> Step | None:
        if _asserts(node):
            return None
        step = super()._step(node)
        if step is None:
            return None
        refusal = self._refused(node, step)
        if refusal:
            return replace(step, symbol=f"{REFUSED}{refusal}")
        if not isinstance(node.target, torch._ops.HigherOrderOperator):
            return step
        if node.target.name().startswith("auto_functionalized"):
            return self._mutable(node, step)
        return replace(step, body=self._body(node, step))

    def _refused(self, node: Node, step: Step) -> str:
        """Why the runtime will refuse an in-place call; empty where it will not."""
        overload = overload_of(node.target)
        if overload is None or not step.writes:
            return ""
        types = [tensor_type(self.vals[operand]) for operand in action_of(node).operands]
        values = pytree.tree_map_only(Node, lambda n: ..., arguments_of(node, overload))
        return refused(canonical(overload), types, values)

    def _mutable(self, node: Node, step: Step) -> Step:
        """The step of a functionalised operator that mutates, spelled as the operator itself: what it leaves in each
        mutated argument is a result. Where arguments are views of what is mutated, it stays as it is."""
        inner = overload_of(node.args[0])
        if inner is None or step.opaque:
            return step
        given = dict(node.kwargs)
        bases = given.pop("_all_bases", None)
        values: list[Any] = []
        for argument in inner._schema.arguments:
            base = given.pop(f"_{argument.name}_base_index", None)
            value = given.pop(argument.name, argument.default_value if argument.has_default_value() else None)
            values.append(bases[base] if isinstance(bases, (list, tuple)) and isinstance(base, int) else value)
        if given:
            return step
        positions = [p for p, value in enumerate(values) for _ in self._nodes_of(value)]
        operands = [v for value in values for node in self._nodes_of(value) for v in self._operand(node)]
        written = [
            p for p, a in enumerate(inner._schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        ]
        if isinstance(bases, (list, tuple)):
            written = [next(p for p, value in enumerate(values) if value is base) for base in bases]
        returned = len(step.results) - len(written)
        if returned < 0 or len(operands) != len(positions) or any(positions.count(p) != 1 for p in written):
            return step
        symbol = spell_values(inner, pytree.tree_map_only(Node, lambda n: ..., values))[0]
        results = [
            result if i < returned else replace(result, suffix=f"!w{positions.index(written[i - returned])}")
            for i, result in enumerate(step.results)
        ]
        return replace(step, symbol=symbol, operands=tuple(operands), results=tuple(results))

    @staticmethod
    def _nodes_of(value: Any) -> list[Node]:
        return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Node)]

    def _body(self, node: Node, step: Step) -> Branches | Loop | None:
        """The programs that a node runs; None where it is not evaluated through them."""
        name = node.target.name()  # type: ignore[union-attr]
        modules = [
            attribute(self.graph_module, str(operand.target))
            for operand in pytree.tree_leaves(node.args)
            if isinstance(operand, Node) and operand.op == "get_attr"
        ]
        if name not in ("cond", "map_impl", "scan") or not all(isinstance(m, GraphModule) for m in modules):
            return None
        programs = [_KernelReader(self.original, m, ExportGraphSignature([], [])).program() for m in modules]
        if name == "cond" and len(programs) == 2 and isinstance(node.args[0], Node):
            operands = len(step.operands) - 1
            return Branches(*programs) if all(len(p.operands) == operands for p in programs) else None
        if len(programs) != 1:
            return None
        (program,) = programs
        groups = [list(group) for group in node.args[1:] if isinstance(group, (list, tuple))]
        carried, mapped = (len(groups[0]), groups[1]) if name == "scan" else (0, groups[0])
        rows = self.vals[mapped[0]].shape[0] if mapped else None
        if not isinstance(rows, int) or not 0 < rows <= _MOST_ROUNDS or len(program.operands) != len(step.operands):
            return None
        return Loop(program, carried, len(mapped), rows)


_MOST_ROUNDS = 1000


def _asserts(node: Node) -> bool:
    overload = overload_of(node.target)
    return overload is not None and not overload._schema.returns and only_asserts(canonical(overload))


def delegated(node: Node) -> bool:
    """Whether a node calls a delegate."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "executorch_call_delegate"


def identity_of(node: Node) -> str:
    """The identity of the delegate that a node calls."""
    owner, held = node.graph.owning_module, node.args[0]
    assert isinstance(held, Node) and owner is not None
    lowered = attribute(owner, str(held.target))
    specs = [(spec.key, spec.value) for spec in lowered.compile_specs]
    named = getattr(lowered, "named_data_store_output", None)
    data = named_bytes(named) if named is not None else {}
    return delegate_identity(lowered.backend_id, specs, lowered.processed_bytes, data)


def named_bytes(named: Any) -> dict[str, bytes]:
    """The contents of a NamedDataStoreOutput of executorch, external ones too, by key."""
    entries = [named.pte_data, *named.external_data.values()]
    return {key: bytes(named.buffers[entry.buffer_index]) for part in entries for key, entry in part.items()}


def _bounded(program: Program) -> Program:
    """A program with every size at its upper bound, and every number computed."""
    if any(step.writes for step in program.steps):
        program = replace(program, steps=tuple(replace(step, body=None) for step in program.steps))
    known = {
        name: ValueRanges(-int_oo if lower is None else lower, int_oo if upper is None else upper)
        for name, (lower, upper) in program.ranges.items()
    }

    def most(size: Any) -> int:
        if isinstance(size, int):
            return size
        bounds = bound_sympy(size, {symbol: known[str(symbol)] for symbol in size.free_symbols if str(symbol) in known})
        if not bounds.upper.is_Integer:
            raise BadInput(f"the size {size} has no upper bound, which ExecuTorch needs; export it with Dim(max=...)")
        return int(bounds.upper)

    def type_of(kind: TensorType | None) -> TensorType | None:
        if kind is None or all(isinstance(size, int) for size in kind.shape):
            return kind
        shape = tuple(most(size) for size in kind.shape)
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        return TensorType(shape, strides, 0, kind.itemsize, kind.dtype, dynamic=True)

    def step_of(step: Step) -> Step:
        results = tuple(replace(result, type=type_of(result.type), size=None) for result in step.results)
        untyped = step.untyped
        if any(r.type is not None and r.type.dynamic and (r.base or r.maybe) and not r.same_region for r in results):
            untyped = f"{step.name} is a view of a size that is not fixed"
        body = step.body
        if isinstance(body, Branches):
            body = Branches(program_of(body.then), program_of(body.other))
        elif isinstance(body, Loop):
            body = replace(body, program=program_of(body.program))
        return replace(step, results=results, untyped=untyped, body=body, reads=True)

    def program_of(one: Program) -> Program:
        inputs = tuple(replace(item, type=type_of(item.type)) for item in one.inputs)
        return replace(one, inputs=inputs, steps=tuple(step_of(step) for step in one.steps))

    return program_of(program)


def _text(value: Any, kind: str) -> str:
    if value is ...:
        return "%"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_text(v, kind) for v in value)}]"
    if isinstance(value, torch.dtype):
        return str(int(scalar_type_enum(value)))
    if isinstance(value, torch.memory_format):
        return str({torch.contiguous_format: 0, torch.preserve_format: 1}.get(value, value))
    if isinstance(value, int) and not isinstance(value, bool) and "float" in kind:
        return repr(float(value))
    return repr(value)
