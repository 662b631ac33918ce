"""What each constraint of the placement rule is for: a graph that the rule gets wrong without it, and wrong numbers.

The graph is the counter-model that the solver finds. It becomes a program, which the reference pass driven by the
weakened rule gets wrong in ExecuTorch's runtime, or over real memory. Where the weakened pass can only make what
PyTorch does not take (a step reads what is not there yet, a copy within overlapping memory), the counter-model is run.
"""

from __future__ import annotations

from dataclasses import dataclass

from copyproof.fuzz.model_run import numbers_of
from copyproof.spec.program import Role
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe
from copyproof.verify.exhaustive.script import Seen, Where, seen
from copyproof.verify.rule_proof import CounterModel, ModelStep, StepKind

PASS = "copyproof.impl:early_placement"


@dataclass(frozen=True)
class Ablation:
    """A constraint dropped.

    Attributes:
        name: the constraint, or the name of a group of them.
        model: the smallest graph that the rest of the rule gets wrong.
        recipe: that graph as a program without write-backs, for a pass to place them.
        seen: the program's script and what it printed; None where the weakened pass makes no program of it.
        printed: the wrong numbers.
        where: where they were seen.
    """

    name: str
    model: CounterModel
    recipe: Recipe
    seen: Seen | None
    printed: str
    where: str


def ablation(names: tuple[str, ...], model: CounterModel) -> Ablation:
    """What a counter-model of the reference rule without some constraints does when it is run.

    Args:
        names: the constraints that were dropped, or groups of them.
        model: what the rest of the rule gets wrong, from `counter_model`.
    """
    recipe = recipe_of(model)
    dropped = ", ".join(names)
    expression = f"early_placement(REFERENCE.without({', '.join(map(repr, names))}))"
    setup = "from copyproof.spec.rule import REFERENCE"
    found = seen(recipe, PASS, f"The placement rule without {dropped}", expression, setup)
    if found is not None and "expected" in found.printed:
        where = "graph's memory, by PyTorch" if found.where is Where.MEMORY else "runtime"
        return Ablation(dropped, model, recipe, found, found.printed, where)
    return Ablation(dropped, model, recipe, found, numbers_of(model), "counter-model, executed by the memory meaning")


def recipe_of(model: CounterModel) -> Recipe:
    """A counter-model as a program: without write-backs and clones, which are for a pass to place.

    What nothing uses is returned, so that it matters; a view by schema is a transposed one; an input that is written in
    place, which no functional program does, is computed from one first.
    """
    number: dict[str, int] = {name: i for i, name in enumerate(model.targets)}
    bystander = len(model.targets)
    steps: list[Act] = []
    sources: dict[str, str] = {}
    returned: list[str] = []
    written_inputs = {s.operands[0] for s in model.steps if s.kind is StepKind.IN_PLACE} - set(model.targets)
    for step in model.steps:
        if step.kind is StepKind.PLACEHOLDER:
            number.setdefault(step.name, bystander)
            if step.name in written_inputs:
                number[step.name] = bystander + 1 + len(steps)
                steps.append(Act(Kind.PURE.value, (bystander,)))
        elif step.kind is StepKind.WRITE_BACK:
            assert step.target is not None
            sources[step.target] = step.operands[1].removesuffix("_clone")
        elif step.kind is StepKind.OUTPUT:
            returned = [name.removesuffix("_clone") for name in step.operands]
        elif step.kind is not StepKind.CLONE:
            value = bystander + 1 + len(steps)
            steps.append(_act(step, [number[name] for name in step.operands] or [bystander]))
            number[step.name if step.name != "_" else f"_{value}"] = value
    used = {o for step in steps for o in step.operands} | {number[name] for name in (*sources.values(), *returned)}
    written = {step.operands[0] for step in steps if step.kind is Kind.WRITE}
    loose = [
        value
        for value, step in enumerate(steps, bystander + 1)
        if value not in used and not (step.kind is Kind.WRITE and step.operands[0] in written & used)
    ]
    outputs = tuple(sorted({*(number[name] for name in returned), *loose}))
    roles = (Role.BUFFER,) * bystander
    return Recipe(roles, tuple(steps), tuple(number[sources[name]] for name in model.targets), outputs)


def _act(step: ModelStep, operands: list[int]) -> Act:
    if step.kind is StepKind.IN_PLACE:
        return Act(Kind.WRITE.value, (operands[0], operands[1] if len(operands) > 1 else operands[0]))
    if step.kind in (StepKind.SCHEMA_VIEW, StepKind.LOWERED_VIEW):
        kind = Kind.TURNED if step.kind is StepKind.SCHEMA_VIEW else Kind.LOWERED
        return Act(kind.value, tuple(operands[:1]))
    if len(operands) > 1:
        return Act(Kind.PURE_OF_TWO.value, tuple(sorted(operands[:2])))
    return Act(Kind.PURE.value, tuple(operands))
