"""Types and sizes, as fake tensors and symbolic numbers say them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from copyproof.spec.program import Size, TensorType


def call_of(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What decides the types of a call's results: the operator and the types of its operands, of fixed sizes, and its
    attributes; None where that is not all, or a list holds tensors."""
    parts: list[Any] = []
    for value in (*args, *kwargs.values()):
        kind = tensor_type(value)
        if kind is not None and all(isinstance(size, int) for size in (*kind.shape, *kind.strides, kind.offset)):
            parts.append(kind)
        elif value is None or isinstance(value, (int, float, bool, str)):
            parts.append((type(value), value))
        elif isinstance(value, (list, tuple)) and all(isinstance(item, int) for item in value):
            parts.append(tuple(value))
        else:
            return None
    return target, tuple(parts), tuple(kwargs)


def tensor_type(val: Any) -> TensorType | None:
    """The type of a fake (or real) tensor; None for anything else."""
    if not isinstance(val, torch.Tensor):
        return None
    return TensorType(
        tuple(map(_plain, val.shape)),
        tuple(map(_plain, val.stride())),
        _plain(val.storage_offset()),
        val.element_size(),
        _spelled(val.dtype, val.is_conj(), val.is_neg()),
    )


@cache
def _spelled(dtype: torch.dtype, conjugated: bool, negated: bool) -> str:
    return str(dtype).removeprefix("torch.") + ("~conj" if conjugated else "") + ("~neg" if negated else "")


def _plain(size: int | torch.SymInt) -> Size:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_Integer else expression


def size_of(val: Any) -> Size:
    """The expression that a number equals, where the export's input sizes decide it; None where data does."""
    if isinstance(val, bool) or not isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return val if isinstance(val, (int, float)) else None
    expression = val.node.expr
    environment = val.node.shape_env
    free: set[Any] = getattr(expression, "free_symbols", set())
    if environment is not None and any(environment.is_unbacked_symint(symbol) for symbol in free):
        return None
    return expression


def leaves_of(val: Any, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Any]]:
    """The tensors and numbers that a node returns, each with its path into lists and tuples."""
    if not isinstance(val, (list, tuple)):
        return [(path, val)]
    return [leaf for i, inner in enumerate(val) for leaf in leaves_of(inner, (*path, i))]


def types_of(val: Any) -> list[TensorType | None]:
    """The types of all that a node returns; None for what is no tensor."""
    return [tensor_type(leaf) for _, leaf in leaves_of(val)]
