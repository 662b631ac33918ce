"""The program model: what a front end makes of a graph, and what every proof is about.

A program has inputs, steps and outputs. Every tensor value is a region of a storage. A step reads the current contents
of its operands, writes some of them, and names results, each a fresh storage or a region of an operand's storage.
Nothing here knows torch; sizes are integers or sympy expressions over the export's symbols.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from copyproof.spec.effects import Chain, Contents

Size = Any
"""An int, or a sympy expression over the export's symbols."""


class Role(Enum):
    """What an input is."""

    USER_INPUT = "user input"
    BUFFER = "buffer"
    PARAMETER = "parameter"
    CONSTANT = "constant"
    OTHER = "token or object"


@dataclass(frozen=True)
class TensorType:
    """Shape, strides and offset in elements, bytes per element, and the element type's name. `dynamic` says that the
    sizes are upper bounds."""

    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size
    itemsize: int
    dtype: str
    dynamic: bool = False

    @property
    def spelled(self) -> str:
        """`float32[2,3]`, for symbols and messages."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def nbytes(self) -> Size:
        """Bytes of the elements, each counted once."""
        total: Size = self.itemsize
        for size in self.shape:
            total = total * size
        return total


@dataclass(frozen=True)
class Region:
    """Elements of a storage, in logical (row-major) order: those at `offset + sum(i_k * strides[k])`, in bytes, for all
    `0 <= i_k < sizes[k]`, each `itemsize` bytes. Dimensions that run on into each other are merged, those of size 1
    left out, so that two views of the same elements in the same order are equal regions."""

    offset: Size
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    itemsize: int
    dtype: str


def region_of(tensor: TensorType) -> Region:
    """The region that a tensor of this type covers in its storage."""
    sizes: list[Size] = []
    strides: list[Size] = []
    for size, stride in zip(tensor.shape, tensor.strides, strict=True):
        if size == 1:
            continue
        if sizes and strides[-1] == stride * size:
            sizes[-1], strides[-1] = sizes[-1] * size, stride
        else:
            sizes.append(size)
            strides.append(stride)
    return Region(
        tensor.offset * tensor.itemsize,
        tuple(sizes),
        tuple(stride * tensor.itemsize for stride in strides),
        tensor.itemsize,
        tensor.dtype,
    )


@dataclass(frozen=True)
class Value:
    """A reference to a value: result `index` of the step or input `name`."""

    name: str
    index: int = 0

    def __str__(self) -> str:
        return self.name if self.index == 0 else f"{self.name}[{self.index}]"


@dataclass(frozen=True)
class Input:
    """A placeholder, or a constant that the graph holds itself. `target` is the name by which the signature knows it
    (the buffer's, or the placeholder's own); `content` names what it holds, where the front end knows."""

    name: str
    role: Role
    target: str
    type: TensorType | None
    content: str = ""


@dataclass(frozen=True)
class Result:
    """One result of a step.

    Attributes:
        type: None for a number.
        base: the value whose storage it is a region of, None for a fresh storage.
        maybe: values whose storages it may or may not be a region of, at an unknown place.
        same_region: it covers just the base's region, in the same order (an in-place result, a lowered view).
        size: the sympy expression that a number equals by the export's symbols, None if it must be computed.
        suffix: what follows the step's symbol in that of its contents; empty for the usual type and number.
    """

    type: TensorType | None
    base: Value | None = None
    maybe: tuple[Value, ...] = ()
    same_region: bool = False
    size: Size = None
    suffix: str = ""


@dataclass(frozen=True)
class Branches:
    """Two programs, over the operands after the first; which one runs is what the first operand says."""

    then: Program
    other: Program


@dataclass(frozen=True)
class Loop:
    """A program that runs `rounds` times. Its operands are `carried` values, then `mapped` tensors of which round i
    takes row i, then others; it returns the carried values of the next round, then the rows of round i of what is
    stacked."""

    program: Program
    carried: int
    mapped: int
    rounds: int


@dataclass(frozen=True)
class Step:
    """One operation.

    Attributes:
        name: the node's name.
        symbol: operator, attributes, and where its operands stand among them; equal symbols compute equal results
            from equal contents.
        operands: the values it reads, in argument order.
        results: what it returns.
        writes: positions of the operands that it writes.
        contents: what results and written regions contain.
        chains: the chains of effects that it takes part in.
        reads: it looks at its operands' elements, and not at their shapes alone.
        in_place: what it writes is just what `symbol`, its functional variant, returns.
        pointwise: element i of what it writes depends on elements i of its operands alone.
        lowered: the lowering makes a view of it: no kernel runs.
        copy: whether it is a `copy_`, which may be a write-back.
        uninitialised: its results hold whatever the memory held.
        reads_around: it may read memory around its operands, in the storages that they are views of.
        carries_around: what is around its first operand is around its result.
        same_order: its result holds just the elements of its first operand, in order, whatever its shape.
        approximation: what is assumed about it, or None.
        opaque: why it cannot be modelled, or None.
        untyped: why its results have no type, or None.
        body: the programs that it runs, where it is evaluated through them.
    """

    name: str
    symbol: str
    operands: tuple[Value, ...]
    results: tuple[Result, ...]
    writes: tuple[int, ...] = ()
    contents: Contents = Contents.FUNCTION
    chains: frozenset[Chain] = frozenset()
    reads: bool = True
    in_place: bool = False
    pointwise: bool = False
    lowered: bool = False
    copy: bool = False
    same_order: bool = False
    uninitialised: bool = False
    reads_around: bool = False
    carries_around: bool = False
    approximation: str | None = None
    opaque: str | None = None
    untyped: str | None = None
    body: Branches | Loop | None = None


@dataclass(frozen=True)
class Output:
    """Output i: what node stands there, and what the signature's output spec i says of it.

    Attributes:
        value: the value that the output node names there; None for a constant.
        constant: the constant, as text, where `value` is None.
        kind: the spec's kind, `USER_OUTPUT`, `BUFFER_MUTATION`, ...
        target: the input that is mutated, by placeholder name; None for a user output.
        spec_name: the name that the spec gives.
        node_name: the name of the node that stands there; empty for a constant.
    """

    value: Value | None
    constant: str
    kind: str
    target: str | None
    spec_name: str
    node_name: str = ""


@dataclass(frozen=True)
class Program:
    """A graph as a sequence of steps. `ranges` gives the export's bounds of each symbol, by name; `input_specs` spells
    what the signature says of each input."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    ranges: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    input_specs: tuple[str, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        """The inputs that whoever runs it gives: all but those whose contents are known."""
        return tuple(item.name for item in self.inputs if not item.content)

    @property
    def targets(self) -> dict[str, Output]:
        """The mutation outputs, by the placeholder name of what they mutate."""
        return {o.target: o for o in self.outputs if o.target is not None}
