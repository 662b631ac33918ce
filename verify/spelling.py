"""Calls and constants as text: two calls spelled alike compute alike from equal operands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.fx import Node

from copyproof.spec.graph import action_of, overload_of

_PLAIN = (bool, int, str, torch.dtype, torch.layout, torch.device, torch.memory_format)


def same_call(a: Node, b: Node) -> bool:
    """Whether two nodes of two graphs are the same call on operands of the same names, however they spell it."""
    if a.op != b.op or a.target != b.target:
        return False
    if _alike(a.args, b.args) and _alike(a.kwargs, b.kwargs):
        return True
    overload = overload_of(a.target)
    return overload is not None and (
        spelled("", a, overload) == spelled("", b, overload)
        and [n.name for n in action_of(a).operands] == [n.name for n in action_of(b).operands]
    )


def _alike(a: Any, b: Any) -> bool:
    """Whether two arguments are the same, nodes by their names; tensors, and what is not plain, never."""
    if isinstance(a, Node):
        return isinstance(b, Node) and a.name == b.name
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_alike(value, b[key]) for key, value in a.items())
    if isinstance(a, float):
        return repr(a) == repr(b)
    return a is None or (isinstance(a, _PLAIN) and bool(a == b))


def spelled(name: str, node: Node, overload: torch._ops.OpOverload | None) -> str:
    """The symbol of a call: operator and attributes, `%` where an operand stands, defaults filled in."""
    owner = node.graph.owning_module
    if overload is None:
        args = [_attribute_text(a, owner) for a in node.args]
        args += [f"{k}={_attribute_text(v, owner)}" for k, v in sorted(node.kwargs.items())]
        return f"{name}({','.join(args)})"
    return f"{name}({','.join(_attribute_text(value, owner) for value in arguments_of(node, overload))})"


def arguments_of(node: Node, overload: torch._ops.OpOverload) -> list[Any]:
    """The arguments of a call by the operator's schema, defaults filled in."""
    values = []
    for index, argument in enumerate(overload._schema.arguments):
        if index < len(node.args):
            values.append(node.args[index])
        elif argument.name in node.kwargs:
            values.append(node.kwargs[argument.name])
        else:
            values.append(argument.default_value if argument.has_default_value() else None)
    return values


def _attribute_text(value: Any, owner: Any) -> str:
    if isinstance(value, Node):
        if value.op == "get_attr" and owner is not None:
            module = attribute(owner, str(value.target))
            if not isinstance(module, torch.Tensor):
                return digest_of(module)
        return "%"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_attribute_text(v, owner) for v in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_attribute_text(v, owner)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, (torch.fx.GraphModule, torch.Tensor)):
        return digest_of(value)
    return repr(value)


def digest_of(module: Any) -> str:
    """A digest of a tensor's contents, a subgraph's structure and constants, or a delegate's payload."""
    digest = hashlib.sha256()
    if isinstance(module, torch.fx.GraphModule):
        number = {node: i for i, node in enumerate(module.graph.nodes)}
        for node in module.graph.nodes:
            args = _numbered((node.args, node.kwargs), number)
            target = "" if node.op in ("placeholder", "output") else str(node.target)
            digest.update(f"{node.op} {target} {args}\n".encode())
            if node.op == "get_attr":
                digest.update(digest_of(attribute(module, str(node.target))).encode())
    elif isinstance(module, torch.Tensor):
        digest.update(repr((module.shape, module.dtype, module.stride())).encode())
        digest.update(raw_bytes(module))
    elif isinstance(payload := getattr(module, "processed_bytes", None), bytes):
        specs = [(spec.key, spec.value) for spec in getattr(module, "compile_specs", None) or ()]
        digest.update(repr((getattr(module, "backend_id", ""), specs)).encode())
        digest.update(payload)
    else:
        return f"object{id(module)}"
    return digest.hexdigest()[:16]


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor in order, as bytes."""
    if not tensor.numel():
        return b""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def content_of_bytes(data: bytes, dtype: str) -> str:
    """The name of the contents of a constant with these bytes."""
    return f"const!{dtype}!{hashlib.sha256(data).hexdigest()[:24]}"


def content_of(tensor: torch.Tensor) -> str:
    """The name of the contents of a constant."""
    return content_of_bytes(raw_bytes(tensor), str(tensor.dtype).removeprefix("torch."))


def delegate_identity(
    backend: str, specs: Iterable[tuple[str, bytes]], payload: bytes, data: Mapping[str, bytes]
) -> str:
    """The symbol of a delegate: two of the same identity compute the same.

    Args:
        backend: the backend's name.
        specs: its compile specs, key and value.
        payload: what the backend made of the subgraph.
        data: named data (weights) by key, of any delegates; those that the payload names count.
    """
    digest = hashlib.sha256(repr((backend, [(key, bytes(value)) for key, value in specs])).encode())
    digest.update(payload)
    for key in sorted(data):
        if key.encode() in payload:
            digest.update(key.encode() + hashlib.sha256(data[key]).digest())
    return f"delegate!{backend}!{digest.hexdigest()[:16]}"


def attribute(owner: Any, path: str) -> Any:
    """What a `get_attr` node with this target names; None where it names nothing."""
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def _numbered(value: Any, number: dict[Node, int]) -> str:
    """Arguments as text, nodes by their place in the graph."""
    if isinstance(value, Node):
        return f"%{number[value]}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_numbered(v, number) for v in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_numbered(v, number)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, torch.Tensor):
        return digest_of(value)
    return repr(value)
