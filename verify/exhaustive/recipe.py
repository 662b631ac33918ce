"""A small stateful program as plain data: what enumeration makes, scripts show, and graphs are built from.

Values are numbered: the targets first, then the one input that is no target, then one value for each step. All are
tensors of one shape, so that every value can be the source of every target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any

from copyproof.spec.program import Role


class Kind(Enum):
    """What a step does; the value is its name on the command line.

    PURE and PURE_OF_TWO compute from one value, from two; SEVERAL computes several results, one of which is used. VIEW
    is a view by schema of all of its operand, in order, TURNED a transposed one; LOWERED is a copy that the lowering
    turns into a view. WRITE writes its first operand in place, a target, a temporary or a view of one, from the second.
    """

    PURE = "pure"
    PURE_OF_TWO = "pure-of-two"
    VIEW = "view"
    TURNED = "turned"
    LOWERED = "lowered-view"
    CLONE = "clone"
    SEVERAL = "several"
    WRITE = "in-place"


_ALIASES = frozenset({Kind.VIEW, Kind.TURNED, Kind.WRITE})


@dataclass(frozen=True, order=True)
class Act:
    """One step: its kind, by name, and its operands by number."""

    name: str
    operands: tuple[int, ...]

    @property
    def kind(self) -> Kind:
        """What it does."""
        return Kind(self.name)


@dataclass(frozen=True)
class Recipe:
    """A program: for each target whether it is a buffer or a user input, the steps, the source of each target by
    number, and what is returned by number."""

    targets: tuple[Role, ...]
    steps: tuple[Act, ...]
    sources: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def bystander(self) -> int:
        """The number of the input that is no target."""
        return len(self.targets)

    @property
    def values(self) -> int:
        """How many values there are."""
        return len(self.targets) + 1 + len(self.steps)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the values in the graph."""
        targets = tuple(f"{'b' if role is Role.BUFFER else 'u'}{i}" for i, role in enumerate(self.targets))
        return (*targets, "x", *(f"v{i}" for i in range(len(self.targets) + 1, self.values)))

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of the targets that are buffers."""
        return tuple(n for n, role in zip(self.names, self.targets, strict=False) if role is Role.BUFFER)

    @property
    def size(self) -> tuple[int, int, int]:
        """What smaller programs are smaller in: steps, then targets, then outputs."""
        return len(self.steps), len(self.targets), len(self.outputs)

    @property
    def roots(self) -> tuple[int, ...]:
        """For each value the one whose storage it lies in, by the functional meaning."""
        return _roots_of(self.bystander, self.steps)

    @property
    def live(self) -> bool:
        """Whether every step matters: its value is used, or what it writes is looked at later."""
        return all(self._needed())

    def without_dead_steps(self) -> Recipe:
        """The same program less the steps that do not matter."""
        recipe = self
        while not recipe.live:
            # The last one first: nothing that is left uses its value.
            recipe = recipe._without(max(i for i, needed in enumerate(recipe._needed()) if not needed))
        return recipe

    def with_dead_steps_returned(self) -> Recipe:
        """The same program with the values of dead steps, the last ones of each chain, as outputs too."""
        recipe = self
        while not all(needed := recipe._needed()):
            last = max(i for i, used in enumerate(needed) if not used)
            recipe = replace(recipe, outputs=(*recipe.outputs, self.bystander + 1 + last))
        return recipe

    def _needed(self) -> list[bool]:
        first, roots = self.bystander + 1, self.roots
        used = {*self.sources, *self.outputs}
        touched = {roots[value] for value in used}
        needed = [False] * len(self.steps)
        for i in reversed(range(len(self.steps))):
            step, value = self.steps[i], first + i
            shows = step.kind is Kind.WRITE and roots[step.operands[0]] in touched
            needed[i] = value in used or shows
            if needed[i]:
                used.update(step.operands)
                touched.update(roots[operand] for operand in step.operands)
        return needed

    def _without(self, dead: int) -> Recipe:
        gone = self.bystander + 1 + dead

        def renumbered(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(v - 1 if v > gone else v for v in values)

        steps = [Act(s.name, renumbered(s.operands)) for i, s in enumerate(self.steps) if i != dead]
        return Recipe(self.targets, tuple(steps), renumbered(self.sources), renumbered(self.outputs))

    def as_lines(self) -> list[str]:
        """The program, a line for each value, source and output."""
        names = self.names
        lines = [f"{names[i]} = placeholder  # {role.value}, a target" for i, role in enumerate(self.targets)]
        lines.append("x = placeholder  # user input")
        for value, step in enumerate(self.steps, self.bystander + 1):
            operands = ", ".join(names[o] for o in step.operands)
            lines.append(f"{names[value]} = {step.name}({operands})")
        new = [f"{names[t]} <- {names[s]}" for t, s in enumerate(self.sources)]
        lines.append(
            f"new values: {', '.join(new)}; returned: {', '.join(names[o] for o in self.outputs) or 'nothing'}"
        )
        return lines

    def as_json(self) -> dict[str, Any]:
        """The program as lists, strings and numbers."""
        return {
            "targets": [role.name for role in self.targets],
            "steps": [[step.name, *step.operands] for step in self.steps],
            "sources": list(self.sources),
            "outputs": list(self.outputs),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Recipe:
        """What `as_json` gave, as a recipe again.

        Raises:
            KeyError, ValueError, TypeError: it is none.
        """
        recipe = Recipe(
            tuple(Role[name] for name in data["targets"]),
            tuple(Act(Kind(step[0]).value, tuple(step[1:])) for step in data["steps"]),
            tuple(data["sources"]),
            tuple(data["outputs"]),
        )
        used = [(*recipe.sources, *recipe.outputs), *(step.operands for step in recipe.steps)]
        limits = [recipe.values, *range(recipe.bystander + 1, recipe.values)]
        if len(recipe.sources) != len(recipe.targets) or any(
            not 0 <= value < limit for values, limit in zip(used, limits, strict=True) for value in values
        ):
            raise ValueError("it uses a value that it does not have yet, or has not one new value for each target")
        return recipe


def places_of(bystander: int, steps: tuple[Act, ...]) -> list[tuple[int, bool]]:
    """For each value the one whose storage it lies in, by the operators' schemas, and whether transposed."""
    places = [(value, False) for value in range(bystander + 1)]
    for step in steps:
        root, turned = places[step.operands[0]]
        alias = step.kind in _ALIASES
        places.append((root, turned ^ (step.kind is Kind.TURNED)) if alias else (len(places), False))
    return places


def named_once(targets: tuple[Role, ...], sources: tuple[int, ...]) -> bool:
    """Whether no two buffers, and no two user inputs, have one source: a signature finds what an output mutates by its
    name (`torch._export.verifier`), and one that names it twice is not valid."""
    return len(set(zip(targets, sources, strict=True))) == len(sources)


def may_be_written(bystander: int, written: tuple[int, bool], read: tuple[int, bool]) -> bool:
    """Whether what lies in one place can be written in place from another (as of `places_of`): no input that is no
    target, which no functional program writes, and nothing from a transposed view of itself, which PyTorch refuses."""
    (root, turned), (other, also) = written, read
    return root != bystander and (root != other or turned == also)


@lru_cache(maxsize=64)
def _roots_of(bystander: int, steps: tuple[Act, ...]) -> tuple[int, ...]:
    """The storages alone; kept, since one sequence of steps has many sources and outputs."""
    return tuple(root for root, _ in places_of(bystander, steps))
