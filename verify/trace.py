"""What happened when a program was evaluated: definitions of contents, versions of storages, reads and writes.

`evaluate.py` makes a `Trace`; everything that judges a program reads one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from copyproof.spec.effects import Chain
from copyproof.spec.program import Region, Size, TensorType, Value
from copyproof.verify.arithmetic import Ranges

Content = str
"""The name of an uninterpreted constant that stands for the elements of a tensor in order, or for a number."""


@dataclass(frozen=True)
class Definition:
    """`name = symbol(operands)`."""

    name: Content
    symbol: str
    operands: tuple[Content, ...]


@dataclass
class Storage:
    """Memory that values are regions of, with its versions: what it held after each write."""

    name: str
    whole: Region | None
    size: Size
    fresh: bool
    versions: list[Version] = field(default_factory=list)


@dataclass(frozen=True)
class Version:
    """The contents of a storage after a write: all of it, and what was written where, by which step."""

    content: Content
    region: Region | None
    written: Content
    step: int


@dataclass(frozen=True)
class Located:
    """A value: its region, what it held when it was named, and by which step. Where only contents say which part of
    the storage it is, the region is None and `place` is what decides."""

    storage: Storage
    region: Region | None
    type: TensorType
    content: Content
    step: int
    maybe: tuple[tuple[Storage, int], ...] = ()
    place: Content = ""


@dataclass(frozen=True)
class Read:
    """Step `step` reads `value` (operand `operand`) and sees `seen`; when it was named the value held `named`."""

    step: int
    name: str
    operand: int
    value: Value
    located: Located
    seen: Content

    @property
    def named(self) -> Content:
        """What the value held when it was named."""
        return self.located.content

    @property
    def label(self) -> str:
        """The reader, for messages: the step, or `output 2`."""
        return self.name if self.name != "output" else f"output {self.operand}"


@dataclass(frozen=True)
class Write:
    """Step `step` writes into `region` of `storage`; `copy` names the source of a `copy_`."""

    step: int
    name: str
    storage: Storage
    region: Region | None
    copy: Value | None


@dataclass
class Trace:
    """What happened when a program was evaluated.

    Attributes:
        definitions: every defined content, by name.
        values: where each value lies.
        reads, writes: in order.
        final: what each input holds after the last step.
        outputs: what each output value holds after the last step, by output index.
        tokens: the last token of each chain of effects.
        unknown: contents about which nothing is known, with the reason.
        approximations: what the model assumed.
    """

    prefix: str
    ranges: Ranges
    definitions: dict[Content, Definition] = field(default_factory=dict)
    values: dict[Value, Located] = field(default_factory=dict)
    numbers: dict[Value, Content] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    final: dict[str, Content] = field(default_factory=dict)
    outputs: list[Content] = field(default_factory=list)
    tokens: dict[Chain, Content] = field(default_factory=dict)
    unknown: dict[Content, str] = field(default_factory=dict)
    approximations: list[str] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
