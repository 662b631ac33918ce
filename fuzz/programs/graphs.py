"""Hypothesis strategies for graphs that torch.export never saw: the recipes of the exhaustive check, at any size.

A graph is decoded from bytes that are drawn at once, since drawing one choice after another takes longer than building
the graph and proving what a pass makes of it. Zero bytes mean the simplest choice, so that failures shrink.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from copyproof.spec.program import Role
from copyproof.verify.exhaustive.bounds import canonical
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe, may_be_written, places_of

_UNARY = (Kind.PURE, Kind.VIEW, Kind.LOWERED, Kind.CLONE, Kind.TURNED, Kind.SEVERAL)
_KINDS = (*_UNARY, Kind.PURE_OF_TWO, Kind.VIEW, Kind.LOWERED, Kind.WRITE)
_TARGETS, _STEPS, _OUTPUTS = 4, 9, 4
_BYTES = 3 + 3 * _STEPS + _TARGETS + _OUTPUTS + 1


def graphs() -> st.SearchStrategy[Recipe]:
    """Recipes of at most four targets, nine steps and four user outputs, without dead steps.

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


def decoded(data: bytes) -> Recipe:
    """The recipe that bytes stand for."""
    choices = _Choices(data)
    count = 1 + choices.below(_TARGETS)
    inputs = choices.below(2) * choices.below(count + 1)
    roles = (Role.BUFFER,) * (count - inputs) + (Role.USER_INPUT,) * inputs
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
    values = count + 1 + len(acts)
    sources: list[int] = []
    for place in range(count):
        taken = {s for s, role in zip(sources, roles, strict=False) if role is roles[place]}
        # Late values first, since early placement is about what comes after them.
        sources.append(choices.of([v for v in reversed(range(values)) if v not in taken]))
    returned = [choices.below(values) for _ in range(choices.below(_OUTPUTS + 1))]
    return canonical(Recipe(roles, tuple(acts), tuple(sources), tuple(returned)))
