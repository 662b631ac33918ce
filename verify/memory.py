"""Byte-precise memory: which contents own which bytes of an arena, and what a read of a range of bytes sees."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Owned:
    """The bytes `start` to `end` of an arena hold `content`, of element type `dtype`, written by `writer`."""

    start: int
    end: int
    content: str = field(compare=False)
    dtype: str = field(compare=False)
    writer: str = field(compare=False)


@dataclass
class Arena:
    """One arena. Owned ranges never overlap; a write takes bytes away from whatever owned them."""

    size: int
    owned: list[Owned] = field(default_factory=list)

    def write(self, start: int, end: int, content: str, dtype: str, writer: str) -> None:
        """Makes `content` the owner of the bytes from `start` to `end`. What owned a part of them is torn: its other
        bytes own nothing whole any more."""
        for other in self.overlapping(start, end):
            self.owned.remove(other)
            for left, right in ((other.start, min(other.end, start)), (max(other.start, end), other.end)):
                if left < right:
                    insort(self.owned, Owned(left, right, f"torn!{other.content}!{left}", other.dtype, writer))
        insort(self.owned, Owned(start, end, content, dtype, writer))

    def read(self, start: int, end: int, dtype: str) -> Owned | None:
        """What owns just these bytes, as this type; None where nothing does."""
        found = self.overlapping(start, end)
        if len(found) == 1 and (found[0].start, found[0].end, found[0].dtype) == (start, end, dtype):
            return found[0]
        return None

    def overlapping(self, start: int, end: int) -> list[Owned]:
        """What owns any of these bytes."""
        first = bisect_left(self.owned, Owned(start, start, "", "", ""))
        if first and self.owned[first - 1].end > start:
            first -= 1
        found = []
        for other in self.owned[first:]:
            if other.start >= end:
                break
            found.append(other)
        return found
