"""Stateful programs as data: what is drawn is valid, is what it says, and runs alike in every form."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from copyproof.fuzz.campaign.hazards import Branches, hazards_of_graph, hazards_of_module
from copyproof.fuzz.campaign.reduction import reduced
from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import run_eager
from copyproof.fuzz.programs.drawing import stateful_modules
from copyproof.fuzz.programs.graphs import ENDS, decoded, families
from copyproof.fuzz.programs.operations import OPERATIONS
from copyproof.fuzz.programs.stateful import Holder, Place, Stateful, Step
from copyproof.fuzz.programs.workbench import Invalid, checked
from copyproof.impl import reference_pass
from copyproof.spec.program import Role
from copyproof.verify.exhaustive.build import Builder
from copyproof.verify.exhaustive.recipe import Act, Recipe

_QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


def swap() -> Stateful:
    """Two buffers exchange their contents."""
    steps = (Step("clone", (0,)), Step("copy_", (0, 1)), Step("copy_", (1, 3)))
    return Stateful((Holder(Place.BUFFER, counting=True), Holder(Place.BUFFER), Holder(Place.INPUT)), steps, (0, 1))


@given(stateful_modules())
@_QUICK
def test_a_module_is_valid_and_survives_json(module: Stateful) -> None:
    assert checked(module) == module
    assert Stateful.from_json(json.loads(json.dumps(module.as_json()))) == module


@given(stateful_modules())
@_QUICK
def test_the_text_of_a_module_runs_and_gives_the_same_twice(module: Stateful) -> None:
    if any(step.name in ("cond", "map") for step in module.steps):
        return  # these take seconds in eager PyTorch
    first, second = (run_eager(*module.built(), state=True) for _ in range(2))
    assert differences(first, second) == []
    assert all(len(call.outputs) == len(module.outputs) for call in first)


def test_every_operation_is_drawn() -> None:
    drawn: set[str] = set()

    @settings(_QUICK, max_examples=100, database=None)
    @given(stateful_modules())
    def draw(module: Stateful) -> None:
        drawn.update(step.name for step in module.steps)

    for number in range(30):
        if drawn != set(OPERATIONS):
            seed(number)(draw)()
    assert drawn == set(OPERATIONS)


@given(families())
@_QUICK
def test_a_family_of_graphs_are_programs_of_the_same_steps_none_of_them_dead(family: list[Recipe]) -> None:
    assert len(family) == ENDS
    assert len({(recipe.targets, recipe.steps) for recipe in family}) == 1
    for recipe in family:
        assert recipe.live
        assert Recipe.from_json(json.loads(json.dumps(recipe.as_json()))) == recipe
        Builder().program(recipe).validate()


def test_zero_bytes_are_the_simplest_graph() -> None:
    assert {recipe.size for recipe in decoded(bytes(60))} == {(0, 1, 0)}


def test_a_module_goes_on_where_another_one_ends() -> None:
    begins = []

    @settings(_QUICK, database=None)
    @given(stateful_modules(started=[swap()]))
    def draw(module: Stateful) -> None:
        begins.append(module.steps[:3] == swap().steps)

    draw()
    assert any(begins) and not all(begins)


def test_two_buffers_that_end_with_one_value_are_not_valid() -> None:
    steps = (Step("copy_", (0, 2)), Step("copy_", (1, 2)))
    with pytest.raises(Invalid, match="one and the same value"):
        checked(Stateful((Holder(Place.BUFFER), Holder(Place.BUFFER), Holder(Place.INPUT)), steps, (0,)))


def test_a_copy_between_regions_that_overlap_is_not_valid() -> None:
    steps = (Step("slice", (0,), (0, 3)), Step("slice", (0,), (1, 4)), Step("copy_", (2, 3)))
    with pytest.raises(Invalid, match="memory location"):
        checked(Stateful((Holder(Place.BUFFER), Holder(Place.INPUT)), steps, (0,)))


def test_only_a_position_is_an_index() -> None:
    """Another input of its type may hold numbers out of bounds."""
    holders = (Holder(Place.BUFFER, (4,), "int64"), *(Holder(p, (1,), "int64") for p in (Place.POSITION, Place.INPUT)))
    for name, rows in (("rows", ()), ("row_", (2,)), ("put_", (2,))):
        assert checked(Stateful(holders, (Step(name, (0, 1, *rows)),), ()))
        with pytest.raises(Invalid, match="does not take"):
            checked(Stateful(holders, (Step(name, (0, 2, *rows)),), ()))


def test_a_custom_operator_does_not_write_what_it_reads() -> None:
    row = Holder(Place.INPUT, (1, 1, 1, 2))
    checked(Stateful((row, row), (Step("update_cache", (0, 1), (0,)),), ()))
    with pytest.raises(Invalid, match="does not take"):
        checked(Stateful((row,), (Step("update_cache", (0, 0), (0,)),), ()))


@given(stateful_modules(), st.sampled_from(["copy_", "clone", "add", "slice", "flip"]))
@_QUICK
def test_reduction_keeps_what_fails_and_takes_the_rest(module: Stateful, culprit: str) -> None:
    def fails(candidate: Stateful) -> bool:
        return any(step.name == culprit for step in candidate.steps)

    if fails(module):
        small = checked(reduced(module, fails, most=2000))
        assert fails(small)
        assert small.size <= module.size
        # A view that the culprit needs, or two, may be left.
        assert len(small.steps) <= 2, small.lines()


def test_reduction_of_a_graph_leaves_one_step() -> None:
    recipe = decoded(bytes([2, 0, 5, *((7 + 37 * i) % 256 for i in range(60))]))[0]
    assert len(recipe.steps) > 2
    name = recipe.steps[-1].name
    small = reduced(recipe, lambda r: any(step.name == name for step in r.steps), most=2000)
    assert len(small.steps) == 1 and len(small.targets) == 1


def test_values_are_exact_in_single_precision() -> None:
    for call in swap().built()[1]:
        for value in call:
            assert torch.equal(value.double().float(), value)
            assert torch.equal(value.round(), value)


def test_hazards_of_a_module_name_what_its_steps_do() -> None:
    steps = (Step("slice", (0,), (0, 2)), Step("fill_", (2,), (1,)), Step("copy_", (0, 1)))
    found = hazards_of_module(Stateful((Holder(Place.BUFFER), Holder(Place.INPUT)), steps, (0, 0)))
    assert found >= {
        "write through a view",
        "one holder copied whole into another",
        "copies between buffer and user input",
        "one value returned twice",
        "a holder returned",
    }
    assert "sizes that vary" not in found and "cond" not in found


@pytest.mark.parametrize(
    ("steps", "sources", "outputs", "hazard"),
    [
        ((), (1, 0), (), "a cycle of sources"),
        ((), (0, 2), (), "a source that is its own target"),
        ((), (2, 0), (), "a source that is another target"),
        ((), (2, 1), (0,), "old contents returned"),
        ((("pure", 2),), (3, 1), (3,), "a new value returned"),
        ((("pure", 2), ("pure", 0)), (3, 1), (4,), "a late read of old contents"),
        (
            (("lowered-view", 0), ("pure", 2), ("pure", 3)),
            (4, 1),
            (5,),
            "a late read of old contents, through a lowered view",
        ),
    ],
)
def test_hazards_of_a_graph_name_what_a_placement_must_heed(
    steps: tuple[tuple[str, int], ...], sources: tuple[int, ...], outputs: tuple[int, ...], hazard: str
) -> None:
    acts = tuple(Act(name, (operand,)) for name, operand in steps)
    found, furthest = hazards_of_graph(Builder().program(Recipe((Role.BUFFER,) * 2, acts, sources, outputs)))
    assert hazard in found
    assert (furthest > 0) == ("late read" in hazard)


def test_branches_of_a_pass_are_those_of_its_own_package() -> None:
    branches = Branches(reference_pass)
    with branches.watched():
        reference_pass(Builder().program(Recipe((Role.BUFFER,), (), (1,), ())))
    few = set(branches.taken)
    assert few and all(place.split(":")[0] in {"reference", "placement", "aliasing", "insertion"} for place in few)
    with branches.watched():
        reference_pass(Builder().program(Recipe((Role.BUFFER,) * 2, (), (1, 0), (0,))))
    assert few < branches.taken
