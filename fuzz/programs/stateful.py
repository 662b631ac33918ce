"""A stateful module as plain data: its holders, its steps, what it returns, and the text that it is run from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from copyproof.fuzz.programs.operations import OPERATIONS, Effect

_RANK = {name: rank for rank, name in enumerate(OPERATIONS)}


class Place(Enum):
    """Where a holder's tensor comes from; the value is the letter of its name."""

    BUFFER = "b"
    PARAMETER = "p"
    INPUT = "x"
    POSITION = "i"


@dataclass(frozen=True)
class Holder:
    """A tensor that is there before the first step: a buffer or parameter, a user input, or a position.

    Attributes:
        place: where it comes from. A position is an integer, 0 or 1 as the calls go on.
        shape, dtype: its type.
        counting: whether a buffer starts at 1, 2, ... and not at zero.
        sizes: whether the first size of a user input varies from call to call.
    """

    place: Place
    shape: tuple[int, ...] = (4,)
    dtype: str = "float32"
    counting: bool = False
    sizes: bool = False


@dataclass(frozen=True)
class Step:
    """An operation by name, its operands by number (holders first, then steps), and its attributes."""

    name: str
    operands: tuple[int, ...]
    attributes: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Stateful:
    """A module: its holders in order, its steps, and the numbers of what it returns."""

    holders: tuple[Holder, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def size(self) -> tuple[int, int, int, int]:
        """What smaller modules are smaller in: steps, holders, outputs, and how complicated the rest is."""
        rest = sum(h.counting + h.sizes + (h.dtype != "float32") + (h.shape != (4,)) for h in self.holders)
        rest += sum(_RANK[step.name] for step in self.steps) + sum(o for s in self.steps for o in s.operands)
        rest += sum(self.outputs)
        return len(self.steps), len(self.holders), len(self.outputs), rest

    @property
    def names(self) -> list[str]:
        """The names of the values: `self.b0`, `x0`, `v3`."""
        found, counts = [], dict.fromkeys(Place, 0)
        for holder in self.holders:
            owner = "self." if holder.place in (Place.BUFFER, Place.PARAMETER) else ""
            found.append(f"{owner}{holder.place.value}{counts[holder.place]}")
            counts[holder.place] += 1
        return found + [f"v{len(found) + i}" for i in range(len(self.steps))]

    @property
    def registers(self) -> tuple[str, ...]:
        """The modules that register its custom operations."""
        return tuple(sorted({name for step in self.steps if (name := OPERATIONS[step.name].registers)}))

    def lines(self) -> list[str]:
        """The steps, as lines of Python."""
        names, first = self.names, len(self.holders)
        return [line_of(step, names[first + i], names) for i, step in enumerate(self.steps)]

    def text(self) -> str:
        """A Python module with a class `Model`, and a function `calls` that gives the arguments of each call."""
        names = self.names
        inputs = [n for n, h in zip(names, self.holders, strict=False) if h.place in (Place.INPUT, Place.POSITION)]
        holds = [
            f"        {_held(name.removeprefix('self.'), holder)}"
            for name, holder in zip(names, self.holders, strict=False)
            if holder.place in (Place.BUFFER, Place.PARAMETER)
        ]
        body = [f"        {line}" for line in self.lines()]
        returned = ", ".join(names[value] for value in self.outputs)
        given = ", ".join(_given(i, h) for i, h in enumerate(h for h in self.holders if h.place.value in "xi"))
        return "\n".join(
            [
                "import torch",
                *(f"import {name}" for name in self.registers),
                "",
                "",
                "class Model(torch.nn.Module):",
                "    def __init__(self):",
                "        super().__init__()",
                *holds,
                "",
                f"    def forward({', '.join(['self', *inputs])}):",
                *body,
                f"        return ({returned}{',' if len(self.outputs) == 1 else ''})",
                "",
                "",
                "def value(place, call, shape, dtype):",
                "    count = torch.arange(torch.Size(shape).numel())",
                "    return ((3 * count + 5 * call + 7 * place) % 11 - 3).reshape(shape).to(dtype)",
                "",
                "",
                "def calls(count=3):",
                f"    return [({given}{',' if len(inputs) == 1 else ''}) for call in range(count)]",
                "",
            ]
        )

    def built(self) -> tuple[torch.nn.Module, list[tuple[Tensor, ...]]]:
        """The module, and the arguments of its calls."""
        namespace: dict[str, Any] = {"__name__": "copyproof_program"}
        exec(compile(self.text(), "<program>", "exec"), namespace)
        return namespace["Model"](), namespace["calls"]()

    def as_json(self) -> dict[str, Any]:
        """The module as lists, strings and numbers."""
        return {
            "holders": [[h.place.name, list(h.shape), h.dtype, h.counting, h.sizes] for h in self.holders],
            "steps": [[s.name, list(s.operands), _plain(s.attributes)] for s in self.steps],
            "outputs": list(self.outputs),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Stateful:
        """What `as_json` gave, as a module again.

        Raises:
            KeyError, ValueError, TypeError: it is none.
        """
        holders = [Holder(Place[place], tuple(shape), *rest) for place, shape, *rest in data["holders"]]
        steps = [Step(name, tuple(operands), _tuples(attributes)) for name, operands, attributes in data["steps"]]
        if any(step.name not in OPERATIONS for step in steps):
            raise ValueError("there is a step that no operation has the name of")
        return Stateful(tuple(holders), tuple(steps), tuple(data["outputs"]))

    def without_step(self, place: int) -> Stateful:
        """The module less a step: what used its value uses its first operand."""
        gone, instead = len(self.holders) + place, self.steps[place].operands[0]

        def moved(value: int) -> int:
            value = instead if value == gone else value
            return value - 1 if value > gone else value

        steps = [
            replace(step, operands=tuple(moved(o) for o in step.operands))
            for i, step in enumerate(self.steps)
            if i != place
        ]
        return Stateful(self.holders, tuple(steps), tuple(moved(o) for o in self.outputs))

    def without_holder(self, place: int) -> Stateful | None:
        """The module less a holder, where nothing uses it."""
        used = {operand for step in self.steps for operand in step.operands} | set(self.outputs)
        if place in used:
            return None

        def moved(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(v - 1 if v > place else v for v in values)

        return Stateful(
            self.holders[:place] + self.holders[place + 1 :],
            tuple(replace(step, operands=moved(step.operands)) for step in self.steps),
            moved(self.outputs),
        )


def line_of(step: Step, name: str, names: list[str], drawing: bool = False) -> str:
    """A step as a line of Python.

    Args:
        step: the step.
        name: what its value is called.
        names: what its operands are called, by number.
        drawing: take what stands in for it while steps are chosen.
    """
    operation = OPERATIONS[step.name]
    more = dict(zip("abc", step.attributes, strict=False))
    text = (drawing and operation.stand_in) or operation.text
    text = text.format(*(names[o] for o in step.operands), **more)
    return text if operation.effect is Effect.WRITE else f"{name} = {text}"


def first_values(holder: Holder) -> Tensor:
    """Something of the type of what a holder holds."""
    if holder.place is Place.POSITION:
        return torch.zeros(1, dtype=torch.int64)
    if holder.place is Place.INPUT or holder.counting:
        return torch.ones(holder.shape, dtype=getattr(torch, holder.dtype))
    return torch.zeros(holder.shape, dtype=getattr(torch, holder.dtype))


def _held(name: str, holder: Holder) -> str:
    shape, dtype = list(holder.shape), f"torch.{holder.dtype}"
    start = f"torch.zeros({shape}, dtype={dtype})"
    if holder.counting:
        start = f"torch.arange(1, {torch.Size(holder.shape).numel() + 1}, dtype={dtype}).reshape({shape})"
    if holder.place is Place.PARAMETER:
        return f"self.{name} = torch.nn.Parameter({start}, requires_grad=False)"
    return f"self.register_buffer({name!r}, {start})"


def _given(place: int, holder: Holder) -> str:
    if holder.place is Place.POSITION:
        return "torch.tensor([call % 2])"
    sizes = ["2 + call % 3" if holder.sizes and i == 0 else str(size) for i, size in enumerate(holder.shape)]
    shape = f"[{', '.join(sizes)}]"
    return f"value({place}, call, {shape}, torch.{holder.dtype})"


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
