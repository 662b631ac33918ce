"""Making a failing module small: fewer steps, then fewer outputs and holders, then plainer ones, as long as it fails alike.

Each try goes through torch.export, so candidates that are not valid are left out by executing their steps first, and few
are tried: whole halves of the steps before single ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from copyproof.fuzz.programs.operations import OPERATIONS
from copyproof.fuzz.programs.stateful import Holder, Place, Stateful, Step
from copyproof.fuzz.programs.workbench import Invalid, checked

_MOST = 120


def reduced(module: Stateful, fails: Callable[[Stateful], bool], most: int = _MOST) -> Stateful:
    """A module that fails as `module` does, and that no single simplification makes smaller.

    Args:
        module: a module for which `fails` is true.
        fails: whether a module fails in the same way.
        most: how many modules are tried at most.
    """
    seen = {module}
    tries = 0
    better = True
    while better:
        better = False
        for candidate in _smaller(module):
            if candidate in seen or candidate.size >= module.size:
                continue
            seen.add(candidate)
            try:
                checked(candidate)
            except Invalid:
                continue
            if tries >= most:
                return module
            tries += 1
            if fails(candidate):
                module, better = candidate, True
                break
    return module


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
