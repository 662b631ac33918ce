"""Executing a module's steps while they are chosen, so that only valid ones are: by what tensors are really there."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from copyproof.fuzz.programs.operations import OPERATIONS, Effect, Operation, an_index
from copyproof.fuzz.programs.stateful import Holder, Place, Stateful, Step, first_values, line_of

_LONGEST_HEAD = 4


class Invalid(Exception):
    """A step that cannot stand where it is, or a module that torch.export would not take."""


class Workbench:
    """The values of a module so far: holders first, then one for each step, None for a write.

    Args:
        holders: the holders, in order.
    """

    def __init__(self, holders: Sequence[Holder]) -> None:
        self.holders = tuple(holders)
        self.steps: list[Step] = []
        self.values: list[Tensor | None] = [first_values(holder) for holder in holders]
        self.varies = [holder.sizes for holder in holders]
        self._storages = [self._storage(value) for value in self.values if value is not None]
        self._contents: dict[int, Any] = {storage: ("start", i) for i, storage in enumerate(self._storages)}
        self._written: set[int] = set()

    def candidates(self, operation: Operation, before: Sequence[int]) -> list[int]:
        """The numbers of the values that can be the next operand, after those in `before`."""
        tensors = [self._tensor(value) for value in before]
        takes = operation.takes[len(before)]
        return [
            value
            for value, tensor in enumerate(self.values)
            if tensor is not None
            and (before or operation.effect is not Effect.WRITE or self._may_be_written(value))
            and (takes is not an_index or self._is_position(value))
            and self._sizes_agree(operation, before, value)
            and takes(tensors, tensor)
        ]

    def fits(self, operation: Operation, before: tuple[int, ...] = ()) -> bool:
        """Whether there are values for all operands of the operation that come after those in `before`."""
        if len(before) == len(operation.takes):
            return True
        return any(self.fits(operation, (*before, value)) for value in self.candidates(operation, before))

    def attributes(self, operation: Operation, operands: Sequence[int]) -> Sequence[tuple[Any, ...]]:
        """The attributes that the operation can have on these operands."""
        return operation.attributes([self._tensor(value) for value in operands])

    def take(self, step: Step) -> None:
        """Executes a step and adds it.

        Raises:
            Invalid: it cannot stand here.
        """
        operation = OPERATIONS.get(step.name)
        if operation is None or len(step.operands) != len(operation.takes):
            raise Invalid(f"there is no operation {step.name!r} of {len(step.operands)} operands")
        for place, operand in enumerate(step.operands):
            if operand not in self.candidates(operation, step.operands[:place]):
                raise Invalid(f"{step.name} does not take value {operand}")
        if step.attributes not in list(self.attributes(operation, step.operands)):
            raise Invalid(f"{step.name} has no attributes {step.attributes}")
        value = self._executed(step)
        varies = any(self.varies[o] for o in step.operands)
        if operation.name == "amax" and step.attributes == (0,):
            varies = False
        if operation.effect is Effect.WRITE:
            self._write(step, operation)
            self.values.append(None)
        else:
            assert value is not None
            self.values.append(value)
            self._contents.setdefault(self._storage(value), ("made", len(self.steps)))
        self.varies.append(varies)
        self.steps.append(step)

    def written(self) -> list[int]:
        """The holders that were written, if only with what they held."""
        return [i for i, storage in enumerate(self._storages) if storage in self._written]

    def clash(self) -> int | None:
        """A holder that was written and holds what another such holder holds, or a parameter that holds what some other
        holder started with. `torch._export.verifier` does not take them: it knows mutations by the names of values."""
        seen = set()
        for holder in self.written():
            content = self._contents[self._storages[holder]]
            other = content[0] == "start" and content != ("start", holder)
            if content in seen or (other and self.holders[holder].place is Place.PARAMETER):
                return holder
            seen.add(content)
        return None

    def returnable(self) -> list[int]:
        """The numbers of the values that can be returned."""
        return [i for i, value in enumerate(self.values) if value is not None and not self._is_position(i)]

    def _tensor(self, value: int) -> Tensor:
        tensor = self.values[value]
        assert tensor is not None
        return tensor

    def _storage(self, tensor: Tensor) -> int:
        return tensor.untyped_storage()._cdata

    def _is_position(self, value: int) -> bool:
        return value < len(self.holders) and self.holders[value].place is Place.POSITION

    def _may_be_written(self, value: int) -> bool:
        storage = self._storage(self._tensor(value))
        return not any(storage == mine and self._is_position(holder) for holder, mine in enumerate(self._storages))

    def _sizes_agree(self, operation: Operation, before: Sequence[int], value: int) -> bool:
        if operation.name in ("head", "head_"):
            tensor = self._tensor(value)
            if not before:
                return not self.varies[value] and tensor.dim() >= 1 and tensor.shape[0] >= _LONGEST_HEAD
            first = self._tensor(before[0])
            alike = tensor.shape[1:] == first.shape[1:] and tensor.dtype == first.dtype
            return self.varies[value] and alike and tensor.dim() == first.dim()
        if self.varies[value] and not operation.sizes:
            return False
        return not before or self.varies[value] == self.varies[before[0]]

    def _executed(self, step: Step) -> Tensor | None:
        names = [f"v{i}" for i in range(len(self.values) + 1)]
        scope: dict[str, Any] = {"torch": torch, "result": None}
        scope.update({f"v{o}": self.values[o] for o in step.operands})
        line = line_of(step, "result", names, drawing=True)
        if name := OPERATIONS[step.name].registers:
            importlib.import_module(name)
        try:
            exec(line, scope)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            raise Invalid(f"{line}: {error}") from error
        result: Tensor | None = scope["result"]
        return result

    def _write(self, step: Step, operation: Operation) -> None:
        written = self._tensor(step.operands[0])
        content: Any = ("written", len(self.steps))
        if operation.name == "copy_":
            read = self._tensor(step.operands[1])
            if _whole(written):
                # Whatever the types are: decompositions lose casts and broadcasts (torch 2.13.0).
                held = self._contents[self._storage(read)]
                content = held if _whole(read) else (held, read.shape, read.stride(), read.storage_offset())
        self._contents[self._storage(written)] = content
        self._written.add(self._storage(written))


def checked(module: Stateful) -> Stateful:
    """The module, if every step can stand where it is.

    Raises:
        Invalid: one cannot, or torch.export would not take the module.
    """
    bench = Workbench(module.holders)
    for step in module.steps:
        bench.take(step)
    if bench.clash() is not None:
        raise Invalid("two holders end with one and the same value")
    if not set(module.outputs) <= set(bench.returnable()):
        raise Invalid("a value is returned that there is none of")
    return module


def _whole(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
