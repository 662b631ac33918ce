"""Byte-precise memory: which contents own which bytes of an arena, what a read of a range of bytes sees, and who owned
them before."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field, replace

Guard = frozenset[tuple[str, bool]]
"""Conditions, and whether each holds."""


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
    longer owns all of its bytes, in the order of its end; `guarded` what owns bytes under some conditions alone."""

    size: int
    owned: list[Owned] = field(default_factory=list)
    past: list[Owned] = field(default_factory=list)
    guarded: dict[Guard, list[Owned]] = field(default_factory=dict)

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
        for guard, owned in self.guarded.items():
            lost = [o for o in owned if o.start < end and start < o.end]
            self.past.extend(replace(o, until=call) for o in lost)
            self.guarded[guard] = [o for o in owned if o not in lost]
        insort(self.owned, Owned(start, end, content, layout, writer, call))

    def read(self, start: int, end: int, assumed: Guard = frozenset()) -> Owned | None:
        """What owns just these bytes where the assumed conditions hold; None where nothing does."""
        found = self.overlapping(start, end)
        if not found:
            known = [o for guard, owned in self.guarded.items() if guard <= assumed for o in owned]
            found = [o for o in known if o.start < end and start < o.end]
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
        guarded = {guard: list(owned) for guard, owned in self.guarded.items()}
        return Arena(self.size, list(self.owned), self.past, guarded)

    def merged(self, other: Arena, condition: str, either: Callable[[str, str], str]) -> Arena:
        """The arena after one of two branches, `self` where the condition holds, or `other`: what both left in the same
        bytes is `either` of the two, what only one left is there under that condition alone."""
        found = Arena(self.size, [], self.past)
        theirs = {(o.start, o.end, o.layout): o for o in other.owned}
        ours = {(o.start, o.end, o.layout): o for o in self.owned}
        for key, owner in ours.items():
            like = theirs.get(key)
            if like is None:
                continue
            if like.content == owner.content:
                insort(found.owned, owner)
            else:
                writer = f"{owner.writer} or {like.writer}"
                insort(found.owned, replace(owner, content=either(owner.content, like.content), writer=writer))
        for truth, mine, rest in ((True, self, theirs), (False, other, ours)):
            alone = [o for o in mine.owned if (o.start, o.end, o.layout) not in rest]
            for guard, owned in [(frozenset(), alone), *mine.guarded.items()]:
                same = guard and _told(self.guarded.get(guard, [])) == _told(other.guarded.get(guard, []))
                under = guard if same else guard | {(condition, truth)}
                if owned and not (same and under in found.guarded):
                    found.guarded.setdefault(under, []).extend(owned)
        return found

    def picture(self, start: int, end: int, call: int) -> list[str]:
        """Who owned bytes of a range up to `call`, a line for each owner, in the order in which they began."""
        now = self.overlapping(start, end)
        before = [o for o in self.past if o.start < end and start < o.end and not o.content.startswith("torn!")]
        owners = sorted([*before, *(o for o in now if not o.content.startswith("torn!"))], key=lambda o: o.since)
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


def _told(owned: list[Owned]) -> list[tuple[int, int, str, str]]:
    return [(o.start, o.end, o.content, o.layout) for o in owned]
