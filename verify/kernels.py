"""Calls spelled by their out variants: a graph's operators and a file's kernels get the same function symbols."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from executorch.exir.operator.convert import to_out_variant
from executorch.exir.tensor import scalar_type_enum
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from copyproof.spec.effects import NO_LOWERING, canonical, functional_name
from copyproof.spec.program import Program
from copyproof.verify.frontend import Reader
from copyproof.verify.spelling import arguments_of, spelled


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


def spell_node(name: str, node: Node, overload: torch._ops.OpOverload | None) -> str:
    """The symbol of a node of a graph, the same as that of the kernel call that it becomes."""
    if overload is None:
        return spelled(name, node, overload)
    values = pytree.tree_map_only(Node, lambda n: ..., arguments_of(node, overload))
    return spell_values(overload, values)[0]


def kernel_program_of(exported: ExportedProgram) -> Program:
    """The functional meaning of an exported program, its operators spelled by their out variants."""
    return Reader(exported, exported.graph_module, exported.graph_signature, NO_LOWERING, {}, spell_node).program()


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
