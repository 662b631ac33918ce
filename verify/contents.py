"""The contents that programs carry: parameters, buffers and constants, compared byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from copyproof.spec.signature import held
from copyproof.verify.pair import Pair
from copyproof.verify.spelling import attribute, raw_bytes

_HELD = (InputKind.BUFFER, InputKind.PARAMETER, InputKind.CONSTANT_TENSOR)


def changed_contents(original: ExportedProgram, rewritten: ExportedProgram) -> str:
    """How the rewritten program's parameters, buffers and constants differ from the original's; empty where not."""
    for name in (*original.state_dict, *original.constants):
        value, after = held(original, name), held(rewritten, name)
        if not isinstance(value, torch.Tensor):
            continue
        if after is None:
            return f"{name!r} is missing from the rewritten program"
        if _described(value) != _described(after):
            return f"{name!r} is {_described(after)[0]} in the rewritten program, not {_described(value)[0]}"
        if raw_bytes(value) != raw_bytes(after):
            return f"{name!r} starts with other contents than in the original"
    return ""


def changed_interface(original: ExportedProgram, rewritten: ExportedProgram) -> str:
    """How the rewritten program is called otherwise: with another structure of arguments or results, or for other
    sizes; empty where it is not."""
    own, other = (p.module_call_graph[0].signature if p.module_call_graph else None for p in (original, rewritten))
    if own is not None and other is not None and (own.in_spec, own.out_spec) != (other.in_spec, other.out_spec):
        return "the rewritten program takes or returns another structure of arguments or results (module_call_graph)"
    for symbol, allowed in original.range_constraints.items():
        now = rewritten.range_constraints.get(symbol)
        if now != allowed:
            return f"the size {symbol} is from {allowed.lower} to {allowed.upper}, and {now} in the rewritten program"
    return ""


def shared_memory(program: ExportedProgram, graph_module: GraphModule, pair: Pair) -> str:
    """Why inputs that share memory cannot be judged: one of them is written; empty where there are none.

    Args:
        program: holds parameters, buffers and constants.
        graph_module: the graph that runs over them, and may hold constants of its own.
        pair: what is judged.
    """
    written = {write.storage.name for write in pair.memory.writes} | set(pair.targets)
    owner: dict[int, str] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind not in _HELD:
            continue
        value = held(program, spec.target)
        pointer = _pointer(value)
        if not pointer:
            continue
        first = owner.setdefault(pointer, spec.arg.name)
        if first != spec.arg.name and {first, spec.arg.name} & written:
            return f"{pair.role(first)} and {pair.role(spec.arg.name)} share memory, which the model does not know"
    for node, value in constants_of(graph_module):
        first = owner.get(_pointer(value), "")
        if first in written or (first and node.name in written):
            return f"{pair.role(first)} and the constant {node.target} share memory, which the model does not know"
    return ""


def constants_of(graph_module: GraphModule) -> Iterator[tuple[Node, Any]]:
    """The tensors that a graph holds itself, with the nodes that name them."""
    for node in graph_module.graph.nodes:
        if node.op == "get_attr":
            value = attribute(graph_module, str(node.target))
            if isinstance(value, torch.Tensor):
                yield node, value


def _pointer(value: Any) -> int:
    """The address of a tensor's storage; 0 for an empty one, a fake one, or no tensor."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return 0
    try:
        return value.untyped_storage().data_ptr()
    except RuntimeError:
        return 0


def _described(value: Any) -> tuple[str, Any]:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__, None
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}", value.stride()
