"""What a step of a stateful module can do: how it is spelled in Python, and on which tensors.

Arithmetic is such that small numbers stay exact, or that each result is rounded once: eager PyTorch and the runtime's
kernels then agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import torch
from torch import Tensor

Attributes = tuple[Any, ...]


class Effect(Enum):
    """What becomes of a step: a FRESH value, an ALIAS of its first operand, or a WRITE into that operand."""

    FRESH = "fresh"
    ALIAS = "alias"
    WRITE = "write"


@dataclass(frozen=True)
class Operation:
    """An operation.

    Attributes:
        name: what recipes call it.
        text: Python, with `{0}` and so on for the operands, and `{a}`, `{b}`, `{c}` for the attributes.
        effect: what becomes of the step.
        takes: for each operand, whether it can be that tensor, given the operands before it.
        attributes: the attributes there are for the operands, simple ones first.
        sizes: whether it takes tensors whose first size is not fixed.
        stand_in: what is executed while steps are chosen, where the text takes seconds.
        registers: the module that registers it and its kernel; empty for what torch and the runtime have.
    """

    name: str
    text: str
    effect: Effect
    takes: tuple[Callable[[Sequence[Tensor], Tensor], bool], ...]
    attributes: Callable[[Sequence[Tensor]], Sequence[Attributes]] = lambda tensors: ((),)
    sizes: bool = False
    stand_in: str = ""
    registers: str = ""


LARGEST = 16
"""The most elements a tensor has."""


def _any(before: Sequence[Tensor], tensor: Tensor) -> bool:
    return True


def _number(before: Sequence[Tensor], tensor: Tensor) -> bool:
    return tensor.dtype is not torch.bool


def _dimensions(least: int) -> Callable[[Sequence[Tensor], Tensor], bool]:
    def takes(before: Sequence[Tensor], tensor: Tensor) -> bool:
        return tensor.dim() >= least

    return takes


def _long(before: Sequence[Tensor], tensor: Tensor) -> bool:
    return tensor.dim() >= 1 and tensor.shape[0] >= 2


def _alike(before: Sequence[Tensor], tensor: Tensor) -> bool:
    return tensor.shape == before[0].shape and tensor.dtype == before[0].dtype


def _broadcasts(before: Sequence[Tensor], tensor: Tensor) -> bool:
    if tensor.dtype != before[0].dtype:
        return False
    try:
        return prod(torch.broadcast_shapes(tensor.shape, before[0].shape)) <= LARGEST
    except RuntimeError:
        return False


def _fits(before: Sequence[Tensor], tensor: Tensor) -> bool:
    """It broadcasts to the shape of the first operand, whatever its type."""
    try:
        return torch.broadcast_shapes(tensor.shape, before[0].shape) == before[0].shape
    except RuntimeError:
        return False


def _fits_alike(before: Sequence[Tensor], tensor: Tensor) -> bool:
    return tensor.dtype == before[0].dtype and _fits(before, tensor)


def _rows(before: Sequence[Tensor], tensor: Tensor) -> bool:
    """It is one row, or one row at each of the positions, of the first operand."""
    return tensor.dtype == before[0].dtype and tensor.shape == (1, *before[0].shape[1:])


def _written(before: Sequence[Tensor], tensor: Tensor) -> bool:
    return not any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def _written_long(before: Sequence[Tensor], tensor: Tensor) -> bool:
    return _written(before, tensor) and _long(before, tensor)


def an_index(before: Sequence[Tensor], tensor: Tensor) -> bool:
    """It has the type of a position; whether its numbers are within bounds no type says."""
    return tensor.dtype is torch.int64 and tensor.shape == (1,)


def _cache(before: Sequence[Tensor], tensor: Tensor) -> bool:
    """It is a whole tensor of one batch; through views of a buffer the custom operator does not lower (1.5.1)."""
    whole = tensor._base is None and tensor.is_contiguous()
    return whole and tensor.dim() == 4 and tensor.shape[0] == 1 and tensor.dtype is torch.float32


def _token(before: Sequence[Tensor], tensor: Tensor) -> bool:
    """It is one row of a cache, in other memory: what an operator makes of operands that overlap is its own affair."""
    cache = before[0]
    if tensor.untyped_storage()._cdata == cache.untyped_storage()._cdata:
        return False
    return tensor.dtype == cache.dtype and tensor.shape == (1, 1, *cache.shape[2:]) and tensor.is_contiguous()


def _joins(before: Sequence[Tensor], tensor: Tensor) -> bool:
    first = before[0]
    return (
        first.dim() >= 1
        and tensor.dim() == first.dim()
        and tensor.dtype == first.dtype
        and tensor.shape[1:] == first.shape[1:]
        and tensor.numel() + first.numel() <= LARGEST
    )


def _shapes(tensors: Sequence[Tensor]) -> Sequence[Attributes]:
    """Other shapes of as many elements."""
    size = tensors[0].numel()
    found: list[tuple[int, ...]] = [(size,)]
    found += [(a, size // a) for a in range(2, size) if size % a == 0]
    found += [(2, 2, size // 4)] if size % 4 == 0 and size > 4 else []
    return [(shape,) for shape in found if shape != tuple(tensors[0].shape)] or [(tuple(tensors[0].shape),)]


def _ranges(dimension: int) -> Callable[[Sequence[Tensor]], Sequence[Attributes]]:
    def attributes(tensors: Sequence[Tensor]) -> Sequence[Attributes]:
        size = tensors[0].shape[dimension]
        pairs = [(a, b) for a in range(size) for b in range(a + 1, size + 1)]
        return sorted(pairs, key=lambda pair: (pair[0] - pair[1], pair))[:12]

    return attributes


def _dims(tensors: Sequence[Tensor]) -> Sequence[Attributes]:
    return [(d,) for d in range(tensors[0].dim())]


def _pieces(tensors: Sequence[Tensor]) -> Sequence[Attributes]:
    size = tensors[0].shape[0]
    return [(each, i) for each in (1, 2) if each < size for i in range(-(-size // each))][:6]


def _types(tensors: Sequence[Tensor]) -> Sequence[Attributes]:
    return [(name,) for name in ("float32", "int64", "float64", "int32") if getattr(torch, name) != tensors[0].dtype]


# Simple ones stand first: what is drawn, and what failures are made small with, prefers them.
_F, _A, _W = Effect.FRESH, Effect.ALIAS, Effect.WRITE

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("add", "{0} + {1}", _F, (_number, _broadcasts), sizes=True),
        Operation("plus", "{0} + {a}", _F, (_number,), lambda t: ((1,), (2,)), sizes=True),
        Operation("times", "{0} * {a}", _F, (_number,), lambda t: ((2,), (3,)), sizes=True),
        Operation("subtract", "{0} - {1}", _F, (_number, _broadcasts), sizes=True),
        Operation("maximum", "torch.maximum({0}, {1})", _F, (_number, _alike), sizes=True),
        Operation("negate", "-{0}", _F, (_number,), sizes=True),
        Operation("amax", "{0}.amax({a})", _F, (_dimensions(1),), _dims, sizes=True),
        Operation("clone", "{0}.clone()", _F, (_any,), sizes=True),
        Operation("copied", "{0}.to({0}.dtype, copy=True)", _F, (_any,), sizes=True),
        Operation("cast", "{0}.to(torch.{a})", _F, (_number,), _types),
        Operation("flip", "{0}.flip({a})", _F, (_long,), _dims),
        Operation("roll", "{0}.roll(1, {a})", _F, (_long,), _dims),
        Operation("cat", "torch.cat([{0}, {1}])", _F, (_dimensions(1), _joins)),
        Operation("rows", "{0}.index_select(0, {1})", _F, (_long, an_index)),
        Operation("view", "{0}.view({a})", _A, (lambda b, t: t.is_contiguous() and t.numel() > 1,), _shapes),
        Operation("reshape", "{0}.reshape({a})", _F, (lambda b, t: t.numel() > 1,), _shapes),
        Operation("transpose", "{0}.transpose(0, 1)", _A, (_dimensions(2),)),
        Operation("slice", "{0}[{a}:{b}]", _A, (_dimensions(1),), _ranges(0)),
        Operation("columns", "{0}[..., {a}:{b}]", _A, (_dimensions(2),), _ranges(-1)),
        Operation("every_other", "{0}[::2]", _A, (_long,)),
        Operation("select", "{0}[{a}]", _A, (_dimensions(1),), lambda t: [(i,) for i in range(min(t[0].shape[0], 3))]),
        Operation("unsqueeze", "{0}.unsqueeze(0)", _A, (lambda b, t: t.dim() < 3,)),
        Operation("expand", "{0}.expand(2, *{0}.shape)", _A, (lambda b, t: t.numel() <= LARGEST // 2 and t.dim() < 3,)),
        Operation("split", "{0}.split({a})[{b}]", _A, (_long,), _pieces),
        Operation("add_", "{0}.add_({1})", _W, (_written, _fits_alike), sizes=True),
        Operation("times_", "{0}.mul_({a})", _W, (_written,), lambda t: ((2,), (3,)), sizes=True),
        Operation("copy_", "{0}.copy_({1})", _W, (_written, _fits)),
        Operation("fill_", "{0}.fill_({a})", _W, (_written,), lambda t: ((0,), (1,))),
        Operation("row_", "{0}.index_copy_(0, {1}, {2})", _W, (_written_long, an_index, _rows)),
        Operation("put_", "{0}.index_put_(({1},), {2})", _W, (_written_long, an_index, _rows)),
        Operation(
            "cond",
            "torch.cond({0}.amax() > 0, lambda a: a + 1, lambda a: a * 2, ({1},))",
            _F,
            (lambda b, t: t.dtype is torch.float32 and t.numel() > 0, lambda b, t: t.dtype is torch.float32),
            stand_in="{1} + 1",
        ),
        Operation(
            "map",
            "torch._higher_order_ops.map(lambda a: a + 1, {0})",
            _F,
            (lambda b, t: t.dtype is torch.float32 and t.dim() >= 2,),
            stand_in="{0} + 1",
        ),
        Operation("head", "{0}[: {1}.shape[0]] + {1}", _F, (_dimensions(1), _any)),
        Operation("head_", "{0}[: {1}.shape[0]].copy_({1})", _W, (_written, _any)),
        Operation(
            "update_cache",
            "torch.ops.llama.update_cache({1}, {0}, {a})",
            _W,
            (_cache, _token),
            lambda t: [(i,) for i in range(t[0].shape[1])],
            registers="executorch.extension.llm.custom_ops.custom_ops",
        ),
    )
}
