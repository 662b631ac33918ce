"""Executing a counter-model by the memory meaning, step by step, and its original by the functional one.

A counter-model may be a graph that PyTorch cannot hold: a step that comes before what it reads. Here a placeholder is
the step at which its contents arrive, memory that nothing was written into yet holds zeros, and an operator computes a
sum of its operands and of its place in the original.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from copyproof.verify.rule_proof import CounterModel, ModelStep, StepKind

_SIZE = 2


@dataclass
class _Memory:
    """Storages by number, and where each name lies: in which storage, and whether turned around."""

    storages: list[list[float]] = field(default_factory=list)
    places: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def made(self, name: str) -> None:
        """Gives a name memory of its own, of zeros, if it has none yet."""
        if name not in self.places:
            self.storages.append([0.0] * _SIZE)
            self.places[name] = (len(self.storages) - 1, False)

    def read(self, name: str) -> list[float]:
        self.made(name)
        storage, turned = self.places[name]
        held = self.storages[storage]
        return held[::-1] if turned else list(held)

    def write(self, name: str, contents: list[float]) -> None:
        self.made(name)
        storage, turned = self.places[name]
        self.storages[storage][:] = contents[::-1] if turned else contents

    def copy(self, into: str, source: str) -> None:
        """Element by element, as a copy between regions that overlap would."""
        self.made(into)
        self.made(source)
        (a, turned), (b, also) = self.places[into], self.places[source]
        for i in range(_SIZE):
            self.storages[a][_SIZE - 1 - i if turned else i] = self.storages[b][_SIZE - 1 - i if also else i]

    def view(self, name: str, base: str, turned: bool) -> None:
        self.made(base)
        storage, already = self.places[base]
        self.places[name] = (storage, already ^ turned)


def numbers_of(model: CounterModel) -> str:
    """Where executing a counter-model gives other numbers than its original, a line each; empty where nowhere."""
    expected, actual = _executed(model, functional=True), _executed(model, functional=False)
    return "\n".join(
        f"{name}: expected {expected[name]}, got {actual[name]}" for name in expected if expected[name] != actual[name]
    )


def _executed(model: CounterModel, functional: bool) -> dict[str, list[float]]:
    """What each target holds in the end, and what each output returns."""
    memory = _Memory()
    sources: dict[str, str] = {}
    outputs: list[str] = []
    for place, step in enumerate(s for s in model.steps if not functional or s.kind not in _PUT_IN):
        _execute(memory, step, place if functional else _place_of(model, step), functional)
        if step.kind is StepKind.OUTPUT:
            outputs = [name.removesuffix("_clone") if functional else name for name in step.operands]
    for step in model.steps:
        if step.kind is StepKind.WRITE_BACK and step.target is not None:
            sources[step.target] = step.operands[1].removesuffix("_clone")
    found = {t: memory.read(sources[t] if functional else t) for t in model.targets}
    return {**found, **{f"output {i}": memory.read(name) for i, name in enumerate(outputs)}}


_PUT_IN = (StepKind.WRITE_BACK, StepKind.CLONE)


def _place_of(model: CounterModel, step: ModelStep) -> int:
    """The step's place among the original's steps, which says what its operator computes."""
    return [id(s) for s in model.steps if s.kind not in _PUT_IN or s is step].index(id(step))


def _execute(memory: _Memory, step: ModelStep, place: int, functional: bool) -> None:
    if step.kind is StepKind.PLACEHOLDER:
        memory.write(step.name, [10.0 * (place + 1) + i for i in range(_SIZE)])
    elif step.kind is StepKind.WRITE_BACK:
        memory.copy(step.operands[0], step.operands[1])
    elif step.kind is StepKind.SCHEMA_VIEW or (step.kind is StepKind.LOWERED_VIEW and not functional):
        memory.view(step.name, step.operands[0], step.kind is StepKind.SCHEMA_VIEW)
    elif step.kind in (StepKind.CLONE, StepKind.LOWERED_VIEW):
        memory.write(step.name, memory.read(step.operands[0]))
    elif step.kind is not StepKind.OUTPUT:
        computed = [sum(column) + place for column in zip([0.0] * _SIZE, *map(memory.read, step.operands), strict=True)]
        memory.write(step.operands[0] if step.kind is StepKind.IN_PLACE else step.name, computed)
