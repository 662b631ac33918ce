"""All programs within bounds, up to symmetry and without dead steps.

Two programs that differ only in names, in the operators that pure steps call, in the order of the operands of one step
or of the user outputs, or in steps that do not matter are one program. The order of targets and of steps is kept, since
a pass sees it. Programs come in blocks that can be counted, shared out and taken up again; the steps of a block's
programs are few before they are many, so that the first program with a fault is a smallest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, islice, product
from math import comb
from typing import Any

from copyproof.spec.program import Role
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe, may_be_written, named_once, places_of

_BLOCK = 16
_UNARY = (Kind.PURE, Kind.VIEW, Kind.TURNED, Kind.LOWERED, Kind.CLONE, Kind.SEVERAL)
_VIEWS = (Kind.VIEW, Kind.TURNED)


@dataclass(frozen=True)
class Bounds:
    """The most of everything: targets (at least one), steps, user outputs; and the kinds of step."""

    targets: int = 2
    steps: int = 2
    outputs: int = 1
    kinds: tuple[Kind, ...] = tuple(Kind)

    @property
    def spelled(self) -> str:
        """For reports, and to know a survey again."""
        left_out = [kind.value for kind in Kind if kind not in self.kinds]
        less = f", no {', '.join(left_out)}" if left_out else ""
        return f"targets {self.targets}, steps {self.steps}, outputs {self.outputs}{less}"


@dataclass(frozen=True)
class Frame:
    """What programs that differ only in sources and outputs share: their targets and steps."""

    targets: tuple[Role, ...]
    steps: tuple[Act, ...]


def recipes(bounds: Bounds) -> Iterator[Recipe]:
    """All programs within bounds, small ones first."""
    for frame in frames(bounds):
        yield from completed(frame, bounds.outputs)


def frames(bounds: Bounds) -> Iterator[Frame]:
    """All targets and steps within bounds: few steps first, then few targets."""
    for steps in range(bounds.steps + 1):
        for roles in roles_within(bounds):
            for chosen in _sequences(len(roles), bounds.kinds, steps, ()):
                yield Frame(roles, chosen)


def blocks(bounds: Bounds) -> Iterator[tuple[Frame, ...]]:
    """The frames in blocks of a few; a block's number is its place in this order."""
    rest = frames(bounds)
    while block := tuple(islice(rest, _BLOCK)):
        yield block


def count_of_blocks(bounds: Bounds) -> int:
    """How many blocks there are, without making them."""
    total = 0
    for steps, roles in product(range(bounds.steps + 1), roles_within(bounds)):
        bystander = len(roles)
        inputs = tuple((value, False) for value in range(bystander + 1))
        total += _count(bystander, bounds.kinds, steps, inputs, {})
    return -(-total // _BLOCK)


def completed(frame: Frame, outputs: int) -> Iterator[Recipe]:
    """The programs with these targets and steps that have no dead step: every choice of sources that a signature can
    name, and of at most `outputs` user outputs."""
    values = range(len(frame.targets) + 1 + len(frame.steps))
    for count in range(outputs + 1):
        for returned in combinations_with_replacement(values, count):
            for sources in product(values, repeat=len(frame.targets)):
                if not named_once(frame.targets, sources):
                    continue
                recipe = Recipe(frame.targets, frame.steps, sources, returned)
                if recipe.live:
                    yield recipe


def roles_within(bounds: Bounds) -> list[tuple[Role, ...]]:
    """What the targets are; buffers stand before user inputs, as in every export."""
    return [
        (Role.BUFFER,) * (count - inputs) + (Role.USER_INPUT,) * inputs
        for count in range(1, bounds.targets + 1)
        for inputs in range(count + 1)
    ]


def canonical(recipe: Recipe) -> Recipe:
    """The program that stands for all that are symmetric to `recipe`: without dead steps, operands of one step and user
    outputs in order, and a step that computes from one value twice for one that computes from it once."""
    kept = recipe.without_dead_steps()
    steps = []
    for step in kept.steps:
        if step.kind is Kind.PURE_OF_TWO and step.operands[0] == step.operands[1]:
            step = Act(Kind.PURE.value, step.operands[:1])
        elif step.kind is Kind.PURE_OF_TWO:
            step = Act(step.name, tuple(sorted(step.operands)))
        steps.append(step)
    return Recipe(kept.targets, tuple(steps), kept.sources, tuple(sorted(kept.outputs)))


def _sequences(
    bystander: int, kinds: tuple[Kind, ...], left: int, chosen: tuple[Act, ...]
) -> Iterator[tuple[Act, ...]]:
    if not left:
        yield chosen
        return
    for step in _choices(bystander, kinds, chosen):
        yield from _sequences(bystander, kinds, left - 1, (*chosen, step))


def _choices(bystander: int, kinds: tuple[Kind, ...], before: tuple[Act, ...]) -> Iterator[Act]:
    """The steps that can come after `before`."""
    values = range(bystander + 1 + len(before))
    for kind in kinds:
        if kind in _UNARY:
            yield from (Act(kind.value, (value,)) for value in values)
        elif kind is Kind.PURE_OF_TWO:
            yield from (Act(kind.value, pair) for pair in combinations(values, 2))
        else:
            yield from (Act(kind.value, pair) for pair in _writes(bystander, places_of(bystander, before)))


def _writes(bystander: int, places: Sequence[tuple[int, bool]]) -> Iterator[tuple[int, int]]:
    """What can be written in place from what."""
    for (written, into), (read, source) in product(enumerate(places), repeat=2):
        if may_be_written(bystander, into, source):
            yield written, read


def _count(
    bystander: int, kinds: tuple[Kind, ...], left: int, places: tuple[tuple[int, bool], ...], known: dict[Any, int]
) -> int:
    """How many sequences of `left` steps there are after values in these places; what is known does for places that are
    alike but for their names."""
    if not left:
        return 1
    renamed: dict[int, int] = {bystander: -1}
    shape = tuple(sorted((renamed.setdefault(root, len(renamed)), turned) for root, turned in places))
    if (left, shape) in known:
        return known[left, shape]

    def after(place: tuple[int, bool]) -> int:
        return _count(bystander, kinds, left - 1, (*places, place), known)

    fresh = after((len(places), False))
    total = 0
    for kind in kinds:
        if kind in _VIEWS:
            total += sum(after((root, turned ^ (kind is Kind.TURNED))) for root, turned in places)
        elif kind in _UNARY:
            total += len(places) * fresh
        elif kind is Kind.PURE_OF_TWO:
            total += comb(len(places), 2) * fresh
        else:
            total += sum(after(places[written]) for written, _ in _writes(bystander, places))
    known[left, shape] = total
    return total
