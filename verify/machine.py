"""A lowered method as a machine: slots that hold tensors, lists and numbers, and calls over them, with jumps.

Both front ends of lowered programs give one: `serialized.py` from the bytes of a `.pte` file, `lowered.py` from the
graph that the pipeline hands to the emitter. `follow.py` says what it computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from copyproof.spec.program import TensorType

Span = tuple[int, int, int]
"""An arena, a first byte, and the byte after the last one."""


@dataclass(frozen=True)
class Tensor:
    """A tensor slot.

    Attributes:
        type: shape at its upper bounds, and element type.
        layout: the element type, and the order of dimensions in memory where it is not the usual one.
        place: arena and first byte; None where the plan gives it no memory.
        held: its bytes where it is a constant, or its first bytes where it is a buffer, in logical order.
        constant: whether nothing may write it.
        name: the qualified name of a buffer, where it is known.
        order: its dimensions as they lie in memory, the outermost first.
    """

    type: TensorType
    layout: str
    place: tuple[int, int] | None = None
    held: bytes | None = None
    constant: bool = False
    name: str = ""
    order: tuple[int, ...] = ()

    @property
    def dynamic(self) -> bool:
        """Whether its sizes may be smaller than in `type`."""
        return self.type.dynamic

    @property
    def in_an_arena(self) -> bool:
        """Whether it has bytes of an arena: the plan gives it a place, and it is not empty."""
        return self.place is not None and int(self.type.nbytes) > 0

    @property
    def span(self) -> Span:
        """Arena, first byte and the byte after the last one."""
        assert self.place is not None
        arena, start = self.place
        return arena, start, start + int(self.type.nbytes)


@dataclass(frozen=True)
class Items:
    """A list slot: the slots that stand in it, None for nothing."""

    slots: tuple[int | None, ...]


@dataclass(frozen=True)
class Plain:
    """A number, text, or nothing; calls may write other numbers into it."""

    value: Any


Slot = Tensor | Items | Plain


@dataclass(frozen=True)
class Kernel:
    """A call of an operator; `slots` by its schema, and after them what it returns. `overload` is None for an
    operator that is not known here."""

    name: str
    overload: torch._ops.OpOverload | None
    slots: tuple[int, ...]

    @property
    def spelled(self) -> str:
        """`aten::add.out`, or `aten::copy_`."""
        variant = self.overload._overloadname if self.overload is not None else "default"
        return self.name if variant == "default" else f"{self.name}.{variant}"


@dataclass(frozen=True)
class Delegate:
    """A call of a delegate: its operands, then its results."""

    identity: str
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """Makes slot `into` name what slot `source` names."""

    source: int
    into: int


@dataclass(frozen=True)
class JumpIfFalse:
    """Goes on at call `to` where the slot holds false."""

    condition: int
    to: int


@dataclass(frozen=True)
class Free:
    """Ends the life of a slot's memory, which the plan must not cover."""

    slot: int


Call = Kernel | Delegate | Move | JumpIfFalse | Free


@dataclass
class Machine:
    """One method.

    Attributes:
        slots, calls: what it works on, and what it does, in order.
        labels: what each call is called in messages.
        inputs, outputs: slots.
        arenas: the size in bytes of each.
        buffers: the slots of mutable buffers, by qualified name.
        unnamed: why buffers that are not in `buffers` are missing there.
        astray: buffers whose first contents the runtime cannot find, in sentences.
    """

    slots: list[Slot]
    calls: list[Call]
    labels: list[str]
    inputs: list[int]
    outputs: list[int]
    arenas: list[int]
    buffers: dict[str, int] = field(default_factory=dict)
    unnamed: str = ""
    astray: list[str] = field(default_factory=list)


def overlap(one: Span, other: Span) -> bool:
    """Whether two spans have a byte in common."""
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def type_of(shape: Iterable[Any], dtype: torch.dtype, dynamic: bool = False) -> TensorType:
    """The type of a tensor slot; where its elements lie is for the layout to say."""
    sizes = tuple(int(size) for size in shape)
    name = str(dtype).removeprefix("torch.")
    return TensorType(sizes, tuple(range(len(sizes))), 0, dtype.itemsize, name, dynamic)


def layout_of(dtype: str, shape: tuple[int, ...], order: list[int]) -> str:
    """The element type, and the dimensions that are longer than one in their order in memory, where that is not the
    usual one: `float32 with dimension 0 of 2, ...`."""
    long = [d for d in order if shape[d] != 1]
    if long == sorted(long):
        return dtype
    return f"{dtype} with the dimensions {', '.join(f'{d} of {shape[d]}' for d in long)} in this order in memory"
