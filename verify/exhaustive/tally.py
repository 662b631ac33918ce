"""What judging a block of programs gave: counts, and the smallest programs for each kind of fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from copyproof.spec.obligations import Obligation
from copyproof.verify.exhaustive.recipe import Recipe
from copyproof.verify.exhaustive.screen import Fault

Key: TypeAlias = tuple[Obligation, Fault]

KEPT = 6
"""How many of the smallest programs with a fault are kept, in case a run does not show the first ones."""


@dataclass(frozen=True)
class Sighting:
    """A program on which a kind of fault is open: where it stands in the enumeration, and what it is."""

    block: int
    place: int
    recipe: Recipe
    about: str = ""

    @property
    def order(self) -> tuple[int, ...]:
        """Smaller programs first, then earlier ones."""
        return (*self.recipe.size, self.block, self.place)


@dataclass
class BlockTally:
    """What one block gave: programs, those with nothing open, and for each fault how many and the first ones."""

    number: int
    programs: int = 0
    closed: int = 0
    counts: dict[Key, int] = field(default_factory=dict)
    first: dict[Key, list[Sighting]] = field(default_factory=dict)
    seconds: float = 0.0
