"""Hypothesis strategies for graphs that torch.export never saw: the recipes of the exhaustive check, at any size.

Graphs come in families that share their steps and differ in how they end: in what is written back where, and in what
is returned. A family is decoded from bytes that are drawn at once, since drawing one choice after another takes longer
than building its graphs and proving what a pass makes of them. Zero bytes mean the simplest choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from copyproof.spec.program import Role
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe, may_be_written, places_of

_UNARY = (Kind.PURE, Kind.VIEW, Kind.LOWERED, Kind.CLONE, Kind.TURNED, Kind.SEVERAL)
_KINDS = (*_UNARY, Kind.PURE_OF_TWO, Kind.VIEW, Kind.LOWERED, Kind.WRITE)
_TARGETS, _STEPS, _OUTPUTS = 4, 9, 4
ENDS = 8
"""How many graphs a family has."""
_BYTES = 3 + 3 * _STEPS + ENDS * (_TARGETS + _OUTPUTS + 1)


def families() -> st.SearchStrategy[list[Recipe]]:
    """Recipes of at most four targets and nine steps, none of them dead: ENDS of them with the same targets and steps,
    and at most four user outputs, more where a step would be dead otherwise.

    In-place steps write a target, a temporary or a view of one, as in the exhaustive check.
    """
    return st.binary(min_size=_BYTES, max_size=_BYTES).map(decoded)


class _Choices:
    """Bytes, taken one by one."""

    def __init__(self, data: bytes) -> None:
        self._rest = iter(data)

    def below(self, limit: int) -> int:
        """A number below `limit`; zero where no byte is left."""
        return next(self._rest, 0) % limit

    def of(self, items: Sequence[int]) -> int:
        """One of the items, the first one for a zero byte."""
        return items[self.below(len(items))]


def decoded(data: bytes) -> list[Recipe]:
    """The recipes that bytes stand for."""
    choices = _Choices(data)
    count = 1 + choices.below(_TARGETS)
    inputs = choices.below(2) * choices.below(count + 1)
    roles = (Role.BUFFER,) * (count - inputs) + (Role.USER_INPUT,) * inputs
    steps = _steps(choices, count)
    return [_ended(choices, roles, steps) for _ in range(ENDS)]


def _steps(choices: _Choices, count: int) -> tuple[Act, ...]:
    acts: list[Act] = []
    for _ in range(choices.below(_STEPS + 1)):
        values = count + 1 + len(acts)
        kind = _KINDS[choices.below(len(_KINDS))]
        first, second = choices.below(values), choices.below(values)
        if kind in _UNARY:
            acts.append(Act(kind.value, (first,)))
            continue
        if kind is Kind.WRITE:
            places = places_of(count, tuple(acts))
            if not may_be_written(count, places[first], places[second]):
                continue
        acts.append(Act(kind.value, (first, second)))
    return tuple(acts)


def _ended(choices: _Choices, roles: tuple[Role, ...], steps: tuple[Act, ...]) -> Recipe:
    values = len(roles) + 1 + len(steps)
    sources: list[int] = []
    for role in roles:
        taken = {s for s, other in zip(sources, roles, strict=False) if other is role}
        # Late values first, since early placement is about what comes after them.
        sources.append(choices.of([v for v in reversed(range(values)) if v not in taken]))
    returned = [choices.below(values) for _ in range(choices.below(_OUTPUTS + 1))]
    return Recipe(roles, steps, tuple(sources), tuple(returned)).with_dead_steps_returned()
