"""Hypothesis strategies for stateful modules: valid by construction, since each step is executed as it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

from copyproof.fuzz.programs.operations import OPERATIONS, Effect, Operation
from copyproof.fuzz.programs.stateful import Holder, Place, Stateful, Step
from copyproof.fuzz.programs.workbench import Invalid, Workbench

_SHAPES: tuple[tuple[int, ...], ...] = ((4,), (2, 2), (4, 2), (2,), (), (1, 4, 1, 2))
_TYPES = ("float32", "int64", "float64", "int32")
_RARE = ("map", "cast", "cond")

_COMMON: tuple[str, ...] = tuple(name for name in OPERATIONS if name not in _RARE)
_COPIES = ("copy_", "copy_", "add_", "view", "slice")
_NAMES = (*_COMMON, *_COPIES, *_RARE)
"""The operations to choose from: simple ones first, copies more often."""

_PARTICULAR = ("row_", "put_", "head", "head_", "update_cache")
"""Those that few modules have the operands for."""


@st.composite
def stateful_modules(draw: st.DrawFn, most_steps: int = 8, started: Sequence[Stateful] = ()) -> Stateful:
    """Modules of a few buffers, parameters and user inputs, and up to so many steps, a swap or a shift register counted
    as one; some go on where one of those in `started` ends."""
    if started and draw(st.integers(0, 2)) == 2:
        before = draw(st.sampled_from(started))
        bench = Workbench(before.holders)
        for step in before.steps:
            bench.take(step)
    else:
        bench = Workbench(draw(_holders()))
    for _ in range(draw(st.integers(1, most_steps))):
        _draw_step(draw, bench)
    if not bench.written():
        _draw_one(draw, bench, OPERATIONS["copy_"])
    while (clash := bench.clash()) is not None:
        bench.take(Step("times_", (clash,), (2,)))
    free = bench.returnable()
    outputs = draw(st.lists(st.sampled_from(free), min_size=1, max_size=3))
    if draw(st.booleans()):
        # What no step reads is computed for nothing unless it is returned.
        used = {operand for step in bench.steps for operand in step.operands}.union(outputs)
        outputs += [value for value in free if value >= len(bench.holders) and value not in used]
    return Stateful(bench.holders, tuple(bench.steps), tuple(outputs))


@st.composite
def _holders(draw: st.DrawFn) -> list[Holder]:
    """One to three buffers, then inputs; mostly of one type, so that they can be copied into each other."""
    sizes = draw(st.integers(0, 7)) == 7
    # A buffer that what varies is a head of.
    shape = draw(st.sampled_from([s for s in _SHAPES if not sizes or s[:1] == (4,)]))
    dtype = draw(st.sampled_from(("float32", *_TYPES)))

    def one(place: Place, counting: bool = False) -> Holder:
        other = draw(st.integers(0, 3)) == 3
        return Holder(
            place,
            draw(st.sampled_from(_SHAPES)) if other else shape,
            draw(st.sampled_from(_TYPES)) if other else dtype,
            counting,
        )

    found = [one(Place.BUFFER, draw(st.integers(0, 4)) == 4) for _ in range(draw(st.integers(1, 3)))]
    if draw(st.integers(0, 9)) == 9:
        found.append(one(Place.PARAMETER))
    found += [one(Place.INPUT) for _ in range(draw(st.integers(1, 2)))]
    if sizes:
        found.append(Holder(Place.INPUT, (4, *shape[1:]), dtype, sizes=True))
    if len(shape) == 4:
        # What one step writes into a cache.
        found.append(Holder(Place.INPUT, (1, 1, *shape[2:]), dtype))
    if draw(st.booleans()):
        found.append(Holder(Place.POSITION, (1,), "int64"))
        if shape:
            # A row for what is written at the position.
            found.append(Holder(Place.INPUT, (1, *shape[1:]), dtype))
    return found


def _draw_step(draw: st.DrawFn, bench: Workbench) -> None:
    kind = draw(st.integers(0, 19))
    if kind == 19:
        draw(st.sampled_from([_swap, _swap, _branches]))(draw, bench)
    elif kind == 18:
        _shift(draw, bench)
    elif kind == 17:
        _late_view(draw, bench)
    elif kind == 16:
        _write_through_a_view(draw, bench)
    elif kind in (14, 15) and (fitting := [name for name in _PARTICULAR if bench.fits(OPERATIONS[name])]):
        _draw_one(draw, bench, OPERATIONS[draw(st.sampled_from(fitting))])
    else:
        _draw_one(draw, bench, OPERATIONS[draw(st.sampled_from(_NAMES))])


def _draw_one(draw: st.DrawFn, bench: Workbench, operation: Operation, first: int | None = None) -> None:
    """Adds a step, if there is anything that the operation takes; on `first`, if one is given."""
    operands: list[int] = []
    for _ in operation.takes:
        candidates = bench.candidates(operation, operands)
        if first is not None and not operands:
            candidates = [value for value in candidates if value == first]
        candidates = [value for value in candidates if bench.fits(operation, (*operands, value))]
        if not candidates:
            return
        if operation.effect is Effect.WRITE and not operands:
            # State is what it is about: temporaries are written less often.
            held = [c for c in candidates if c < len(bench.holders)]
            candidates = held + candidates
        if operation.effect is Effect.WRITE and len(operands) == 1:
            # What is copied into itself comes last.
            candidates.sort(key=lambda value: value == operands[0])
        operands.append(draw(st.sampled_from(candidates)))
    attributes = draw(st.sampled_from(list(bench.attributes(operation, operands))))
    try:
        bench.take(Step(operation.name, tuple(operands), attributes))
    except Invalid:
        return


def _alike(bench: Workbench) -> list[list[int]]:
    """Buffers of one type, in groups of two or more."""
    groups: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for place, holder in enumerate(bench.holders):
        if holder.place is Place.BUFFER:
            groups.setdefault((holder.shape, holder.dtype), []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def _swap(draw: st.DrawFn, bench: Workbench) -> None:
    """Two buffers exchange their contents."""
    if groups := _alike(bench):
        first, second = draw(st.sampled_from(groups))[:2]
        kept = len(bench.values)
        for step in (Step("clone", (first,)), Step("copy_", (first, second)), Step("copy_", (second, kept))):
            bench.take(step)


def _branches(draw: st.DrawFn, bench: Workbench) -> None:
    """Two results of branches that are alive together."""
    for _ in range(2):
        _draw_one(draw, bench, OPERATIONS["cond"])


def _late_view(draw: st.DrawFn, bench: Workbench) -> None:
    """A buffer is read through a view after what it takes next is there."""
    _draw_one(draw, bench, OPERATIONS["view"])
    view = len(bench.values) - 1
    if bench.steps and bench.steps[-1].name == "view":
        for name in draw(st.lists(st.sampled_from(["flip", "negate", "view", "clone"]), min_size=1, max_size=2)):
            _draw_one(draw, bench, OPERATIONS[name], first=view)
        _draw_one(draw, bench, OPERATIONS["copy_"], first=bench.steps[view - len(bench.holders)].operands[0])


def _write_through_a_view(draw: st.DrawFn, bench: Workbench) -> None:
    """A write into a view of a buffer or input."""
    name = draw(st.sampled_from(["slice", "select", "view", "every_other", "columns", "transpose"]))
    _draw_one(draw, bench, OPERATIONS[name])
    if bench.steps and bench.steps[-1].name == name:
        write = draw(st.sampled_from(["copy_", "add_", "times_", "fill_"]))
        _draw_one(draw, bench, OPERATIONS[write], first=len(bench.values) - 1)


def _shift(draw: st.DrawFn, bench: Workbench) -> None:
    """Each buffer takes the contents of the next one, in one order or the other."""
    if groups := _alike(bench):
        group = draw(st.sampled_from(groups))
        pairs = list(pairwise(group))
        for into, source in pairs if draw(st.booleans()) else pairs[::-1]:
            bench.take(Step("copy_", (into, source)))
