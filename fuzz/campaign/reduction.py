"""Making a failing program small: fewer steps, then fewer outputs and holders, then plainer ones, as long as it fails
alike.

Each try of a module goes through torch.export, so candidates that are not valid are left out by executing their steps
first, and few are tried: whole halves of the steps before single ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from copyproof.fuzz.campaign.levels import Program
from copyproof.fuzz.programs.operations import OPERATIONS
from copyproof.fuzz.programs.stateful import Holder, Place, Stateful, Step
from copyproof.fuzz.programs.workbench import Invalid, checked
from copyproof.verify.exhaustive.bounds import canonical
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe, may_be_written, named_once, places_of


def reduced(program: Program, fails: Callable[[Any], bool], most: int) -> Program:
    """A program that fails as `program` does, and that no single simplification makes smaller.

    Args:
        program: a program for which `fails` is true.
        fails: whether a program fails in the same way.
        most: how many programs are tried at most.
    """
    seen = {program}
    tries = 0
    better = True
    while better:
        better = False
        smaller = _smaller(program) if isinstance(program, Stateful) else _smaller_graphs(program)
        for candidate in smaller:
            if candidate in seen or _size(candidate) >= _size(program) or not _valid(candidate):
                continue
            seen.add(candidate)
            if tries >= most:
                return program
            tries += 1
            if fails(candidate):
                program, better = candidate, True
                break
    return program


def _size(program: Program) -> tuple[int, ...]:
    if isinstance(program, Stateful):
        return program.size
    kinds = list(Kind)
    rest = (
        sum(program.sources) + sum(program.outputs) + sum(kinds.index(s.kind) + sum(s.operands) for s in program.steps)
    )
    return (*program.size, rest)


def _valid(program: Program) -> bool:
    if isinstance(program, Recipe):
        return True
    try:
        checked(program)
    except Invalid:
        return False
    return True


def _smaller_graphs(recipe: Recipe) -> Iterator[Recipe]:
    """Simplifications of a graph."""
    for place in reversed(range(len(recipe.steps))):
        gone = recipe.bystander + 1 + place
        yield from _graph(recipe, _substituted(recipe, gone, recipe.steps[place].operands[0]), without_step=place)
    for place in range(len(recipe.outputs)):
        yield from _graph(replace(recipe, outputs=recipe.outputs[:place] + recipe.outputs[place + 1 :]))
    if len(recipe.targets) > 1:
        for place in reversed(range(len(recipe.targets))):
            yield from _graph(recipe, _substituted(recipe, place, recipe.bystander), without_target=place)
    for place, source in enumerate(recipe.sources):
        for other in range(source):
            sources = (*recipe.sources[:place], other, *recipe.sources[place + 1 :])
            yield from _graph(replace(recipe, sources=sources))
    for place, step in enumerate(recipe.steps):
        if step.kind is not Kind.WRITE:
            for name in (Kind.PURE.value, Kind.VIEW.value, Kind.LOWERED.value):
                plain = Act(name, step.operands[:1])
                yield from _graph(replace(recipe, steps=(*recipe.steps[:place], plain, *recipe.steps[place + 1 :])))


def _substituted(recipe: Recipe, value: int, instead: int) -> Recipe:
    """The graph with one value for another, wherever it is used."""

    def put(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(instead if v == value else v for v in values)

    steps = tuple(Act(s.name, put(s.operands)) for s in recipe.steps)
    return replace(recipe, steps=steps, sources=put(recipe.sources), outputs=put(recipe.outputs))


def _graph(
    recipe: Recipe, changed: Recipe | None = None, without_step: int | None = None, without_target: int | None = None
) -> Iterator[Recipe]:
    """The graph less a step or a target that nothing uses, if what is left is a program."""
    found = changed or recipe
    gone = without_target if without_step is None else recipe.bystander + 1 + without_step

    def moved(values: tuple[int, ...]) -> tuple[int, ...]:
        return values if gone is None else tuple(v - 1 if v > gone else v for v in values)

    steps = [s for i, s in enumerate(found.steps) if i != without_step]
    keep = [i for i in range(len(found.targets)) if i != without_target]
    found = Recipe(
        tuple(found.targets[i] for i in keep),
        tuple(Act(s.name, moved(s.operands)) for s in steps),
        moved(tuple(found.sources[i] for i in keep)),
        moved(found.outputs),
    )
    if not named_once(found.targets, found.sources):
        return
    places = places_of(found.bystander, found.steps)
    for value, step in enumerate(found.steps, found.bystander + 1):
        if any(operand >= value for operand in step.operands):
            return
        if step.kind is Kind.WRITE and not may_be_written(found.bystander, *(places[o] for o in step.operands)):
            return
    yield canonical(found)


def _smaller(module: Stateful) -> Iterator[Stateful]:
    """Simplifications of a module, those that take most away first."""
    count = len(module.steps)
    size = count // 2
    while size >= 1:
        for start in range(count - size, -1, -size):
            yield _without_steps(module, range(start, start + size))
        size //= 2
    for place in range(len(module.outputs)):
        rest = module.outputs[:place] + module.outputs[place + 1 :]
        yield replace(module, outputs=rest)
    for place in reversed(range(len(module.holders))):
        if (less := module.without_holder(place)) is not None:
            yield less
    yield from _with_other_operands(module)
    yield from _plainer(module)


def _without_steps(module: Stateful, places: range) -> Stateful:
    for place in reversed(places):
        module = module.without_step(place)
    return module


def _with_other_operands(module: Stateful) -> Iterator[Stateful]:
    """A step on earlier values, or an earlier value returned."""
    for place, step in enumerate(module.steps):
        for at, operand in enumerate(step.operands):
            for other in range(operand):
                operands = (*step.operands[:at], other, *step.operands[at + 1 :])
                yield _with_step(module, place, replace(step, operands=operands))
    for place, output in enumerate(module.outputs):
        for other in range(min(output, len(module.holders))):
            yield replace(module, outputs=(*module.outputs[:place], other, *module.outputs[place + 1 :]))


def _plainer(module: Stateful) -> Iterator[Stateful]:
    """Plainer types and starts of all holders at once, then one by one; simpler operations."""
    plain = [_plain(holder) for holder in module.holders]
    yield replace(module, holders=tuple(plain))
    for place, holder in enumerate(module.holders):
        if holder.place is Place.POSITION:
            continue
        for simple in (plain[place], replace(holder, counting=False), replace(holder, dtype="float32")):
            yield replace(module, holders=(*module.holders[:place], simple, *module.holders[place + 1 :]))
    for place, step in enumerate(module.steps):
        for name in ("clone", "plus", "fill_", "times_", "copy_"):
            operation = OPERATIONS[name]
            attributes = ((1,) if name in ("plus", "fill_") else (2,)) if operation.attributes([]) != ((),) else ()
            operands = step.operands[: len(operation.takes)]
            if len(operands) == len(operation.takes) and operation.effect is OPERATIONS[step.name].effect:
                yield _with_step(module, place, Step(name, operands, attributes))


def _plain(holder: Holder) -> Holder:
    return holder if holder.place is Place.POSITION else Holder(holder.place, (4,))


def _with_step(module: Stateful, place: int, step: Step) -> Stateful:
    return replace(module, steps=(*module.steps[:place], step, *module.steps[place + 1 :]))
