"""Byte-precise memory: which contents own which bytes of an arena, what a read of a range of bytes sees, and who owned
them before."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, order=True)
class Owned:
    """The bytes `start` to `end` of an arena hold `content`, in `layout`, written by `writer` in call `since`; another
    call took some of them away in call `until`."""

    start: int
    end: int
    content: str = field(compare=False)
    layout: str = field(compare=False)
    writer: str = field(compare=False)
    since: int = field(compare=False, default=-1)
    until: int | None = field(compare=False, default=None)


@dataclass
class Arena:
    """One arena. Owned ranges never overlap; a write takes bytes away from whatever owned them. `past` lists what no
    longer owns all of its bytes, in the order of its end."""

    size: int
    owned: list[Owned] = field(default_factory=list)
    past: list[Owned] = field(default_factory=list)

    def write(self, start: int, end: int, content: str, layout: str, writer: str, call: int = -1) -> None:
        """Makes `content` the owner of the bytes from `start` to `end`. What owned a part of them is torn: its other
        bytes own nothing whole any more."""
        for other in self.overlapping(start, end):
            self.owned.remove(other)
            self.past.append(replace(other, until=call))
            for left, right in ((other.start, min(other.end, start)), (max(other.start, end), other.end)):
                if left < right:
                    torn = replace(other, start=left, end=right, content=f"torn!{other.content}!{left}")
                    insort(self.owned, torn)
        insort(self.owned, Owned(start, end, content, layout, writer, call))

    def read(self, start: int, end: int) -> Owned | None:
        """What owns just these bytes; None where nothing does."""
        found = self.overlapping(start, end)
        if len(found) == 1 and (found[0].start, found[0].end) == (start, end):
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

    def copy(self) -> Arena:
        """The same arena, to go on in another branch; the past is shared."""
        return Arena(self.size, list(self.owned), self.past)

    def merged(self, other: Arena, either: Callable[[str, str], str]) -> Arena:
        """The arena after one of two branches, `self` or `other`: what both left in the same bytes is `either` of the
        two, and what only one left owns nothing whole."""
        theirs = {(o.start, o.end, o.layout): o for o in other.owned}
        found = Arena(self.size, [], self.past)
        for ours in self.owned:
            like = theirs.get((ours.start, ours.end, ours.layout))
            if like is None:
                continue
            if like.content == ours.content:
                insort(found.owned, ours)
            else:
                writer = f"{ours.writer} or {like.writer}"
                insort(found.owned, replace(ours, content=either(ours.content, like.content), writer=writer))
        return found

    def picture(self, start: int, end: int, call: int) -> list[str]:
        """Who owned bytes of a range up to `call`, a line for each owner, in the order in which they began."""
        now = self.overlapping(start, end)
        before = [o for o in self.past if o.start < end and start < o.end and not o.content.startswith("torn!")]
        owners = sorted({*before, *(o for o in now if not o.content.startswith("torn!"))}, key=lambda o: o.since)
        width = len(str(max([end, *(o.end for o in owners)])))
        lines = []
        for owner in owners[-_MOST_OWNERS:]:
            since = "the start" if owner.since < 0 else f"call {owner.since}"
            until = "now" if owner.until is None else f"call {owner.until}"
            span = f"{owner.start:>{width}} to {owner.end:>{width}}"
            lines.append(f"bytes {span}: {owner.writer}, from {since} to {until}")
        lines.append(f"bytes {start:>{width}} to {end:>{width}}: read in call {call}")
        return lines


_MOST_OWNERS = 6
