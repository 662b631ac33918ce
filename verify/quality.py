"""The quality obligations: is each write-back as early as it can be, and does no point hold more live bytes?"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass

import sympy
from torch.export import ExportedProgram

from copyproof.spec.effects import Profile
from copyproof.spec.program import Program, Size
from copyproof.verify.arithmetic import at_most
from copyproof.verify.evaluate import evaluate
from copyproof.verify.pair import Pair, pair_of
from copyproof.verify.solver import Above, Case, Number
from copyproof.verify.trace import Trace, Write


@dataclass(frozen=True)
class Bound:
    """The step that a write-back must come after, and why."""

    step: int
    reason: str


def earliest(pair: Pair) -> tuple[list[Case], dict[str, Bound]]:
    """Some write-back could stand before an original step that now comes before it.

    A write-back must come after the definition of its source, the last write into its source's storage, and every
    earlier read or write of its target's storage. If an original step stands between the last of these and the
    write-back, it could move up past that step; the case says that this step's position is above the bound.

    Returns:
        the cases, and for each write-back the bound that holds it.
    """
    original_positions = [i for i, step in enumerate(pair.rewritten.steps) if not pair.inserted(step.name)]
    cases, bounds = [], {}
    for write in (w for w in pair.write_backs if w.storage.name in pair.targets):
        bound = bound_of(pair, write)
        bounds[write.name] = bound
        before = [p for p in _last_below(original_positions, write.step)]
        if before:
            passed = Number(f"step that {write.name} comes after", before[0])
            cases.append(Case(write.name, (Above(passed, Number(f"bound of {write.name}", bound.step)),)))
    return cases, bounds


def bound_of(pair: Pair, write: Write) -> Bound:
    """The last step before a write-back that it must come after."""
    bound = Bound(-1, "the placeholders")
    source = pair.memory.values.get(write.copy) if write.copy is not None else None
    if source is not None:
        if source.step > bound.step:
            bound = Bound(source.step, f"{_name(pair, source.step)} defines its source")
        for other in pair.memory.writes:
            if other.storage is source.storage and bound.step < other.step < write.step:
                bound = Bound(other.step, f"{other.name} writes into its source")
    for other in pair.memory.writes:
        if other.storage is write.storage and bound.step < other.step < write.step:
            bound = Bound(other.step, f"{other.name} writes into {write.storage.name}")
    for read in pair.reads_of.get(write.storage.name, ()):
        if bound.step < read.step < write.step:
            bound = Bound(read.step, f"{read.name} reads {write.storage.name} through {read.value}")
    return bound


def lifetime(pair: Pair) -> tuple[list[Case], list[str]]:
    """At some original step more bytes are live in the rewritten program than under end placement.

    A fresh storage lives from the step that makes it to the last step that touches it, user outputs to the end; under
    end placement the sources of all write-backs live to the end too.

    Returns:
        the cases whose sizes are numbers, and sentences about points where symbolic sizes could not be compared or
        exceed.
    """
    baseline = evaluate(pair.baseline, "E")
    sources = {o.value for o in pair.baseline.outputs if o.target is not None and o.value is not None}
    kept_to_end = {located.storage.name for v in sources if (located := baseline.values.get(v)) is not None}
    ends = _live(pair.baseline, baseline, kept_to_end)
    now = _live(pair.rewritten, pair.memory, set())
    names = {step.name: i for i, step in enumerate(pair.baseline.steps)}
    cases, symbolic = [], []
    # Steps at which the two differ by the same tensors are one case: the first of them stands for all.
    compared: dict[frozenset[tuple[Size, int]], bool] = {}
    for index, step in enumerate(pair.rewritten.steps):
        if pair.inserted(step.name) or step.name not in names:
            continue
        mine, theirs = now[index], ends[names[step.name]]
        difference = Counter(mine)
        difference.subtract(theirs)
        key = frozenset((size, count) for size, count in difference.items() if count)
        if key in compared:
            continue
        if all(isinstance(size, int) for size in (*mine, *theirs)):
            compared[key] = True
            live = Number(f"bytes live at {step.name}", _total(mine))
            allowed = Number(f"bytes live at {step.name} under end placement", _total(theirs))
            cases.append(Case(step.name, (Above(live, allowed),)))
            continue
        more = sympy.Add(*[size * count for size, count in key if count > 0])
        less = sympy.Add(*[size * -count for size, count in key if count < 0])
        compared[key] = not key or at_most(more, less, pair.memory.ranges)
        if not compared[key]:
            symbolic.append(f"at {step.name} the live bytes may exceed those of end placement for some sizes")
    return cases, symbolic


@dataclass(frozen=True)
class Lifetimes:
    """What a rewritten program costs.

    Attributes:
        live: bytes live at each step, inputs not counted.
        copies, clones: how many the pass inserted.
        at_largest: some sizes are symbolic, and counted at the largest that the export allows.
    """

    live: list[int]
    copies: int
    clones: int
    at_largest: bool


def lifetimes(original: ExportedProgram, rewritten: ExportedProgram, profile: Profile) -> Lifetimes:
    """Bytes live over the rewritten program, as `profile` lowers it; a symbol without an upper bound counts as 1."""
    pair = pair_of(original, rewritten.graph_module, rewritten.graph_signature, profile)
    after = pair.rewritten
    sizes = _live(after, pair.memory, set())
    at_largest = any(not isinstance(size, int) for counted in sizes for size in counted)
    upper = {name: high for name, (_, high) in after.ranges.items() if high is not None}

    def number(size: Size) -> int:
        if isinstance(size, int):
            return size
        return int(size.subs({symbol: upper.get(str(symbol), 1) for symbol in size.free_symbols}))

    inserted = [step for step in after.steps if pair.inserted(step.name)]
    return Lifetimes(
        [sum(number(size) * count for size, count in counted.items()) for counted in sizes],
        sum(step.copy for step in inserted),
        sum("clone" in step.symbol.split("(")[0] for step in inserted),
        at_largest,
    )


def _live(program: Program, trace: Trace, kept_to_end: set[str]) -> list[Counter[Size]]:
    """How many fresh storages of each size live at each step."""
    end = len(program.steps)
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    sizes: dict[str, Size] = {}
    for storage in trace.storages:
        if storage.fresh:
            first[storage.name] = last[storage.name] = storage.versions[0].step
            sizes[storage.name] = storage.size
    for read in trace.reads:
        if read.name == "output" and program.outputs[read.operand].target is not None:
            continue
        for storage in (read.located.storage, *(s for s, _ in read.located.maybe)):
            if storage.fresh:
                last[storage.name] = max(last[storage.name], read.step)
    for write in trace.writes:
        if write.storage.fresh:
            last[write.storage.name] = max(last[write.storage.name], write.step)
    born: dict[int, list[str]] = {}
    dying: dict[int, list[str]] = {}
    for name in first:
        born.setdefault(first[name], []).append(name)
        dying.setdefault(end if name in kept_to_end else last[name], []).append(name)
    live: Counter[Size] = Counter()
    found = []
    for index in range(end):
        for name in born.get(index, ()):
            live[sizes[name]] += 1
        found.append(Counter(live))
        for name in dying.get(index, ()):
            live[sizes[name]] -= 1
            if not live[sizes[name]]:
                del live[sizes[name]]
    return found


def _total(sizes: Counter[Size]) -> int:
    return sum(size * count for size, count in sizes.items())


def _last_below(positions: list[int], limit: int) -> list[int]:
    """The last of `positions` below `limit`, as a list of one or none."""
    index = bisect_left(positions, limit)
    return [positions[index - 1]] if index else []


def _name(pair: Pair, step: int) -> str:
    return pair.rewritten.steps[step].name
