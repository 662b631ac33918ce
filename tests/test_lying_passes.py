"""Nothing that a pass wrote itself is believed: types, targets of placeholders, constants, the program it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.export import ExportedProgram

from copyproof.fuzz.campaign.graph_trial import GraphTrials
from copyproof.spec.obligations import Verdict
from copyproof.spec.program import Role
from copyproof.verify.exhaustive.build import Builder
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe
from copyproof.verify.exhaustive.screen import Screen
from copyproof.verify.prover import prove_pass

from . import lying_passes as lies

ONE = Recipe((Role.BUFFER,), (Act(Kind.PURE.value, (1,)),), (2,), (0,))
TWO = Recipe((Role.BUFFER, Role.BUFFER), (Act(Kind.PURE.value, (2,)), Act(Kind.PURE.value, (2,))), (3, 4), ())
LIES = [
    (lies.type_changed_in_place, ONE),
    (lies.input_retyped, ONE),
    (lies.buffer_held_as_a_constant, ONE),
    (lies.constant_of_a_false_type, ONE),
    (lies.given_program_spoilt, ONE),
    (lies.buffers_that_overlap, TWO),
]


@pytest.mark.parametrize(("lie", "recipe"), LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_a_lie_is_not_proved(lie: Callable[[Any], Any], recipe: Recipe) -> None:
    assert prove_pass(Builder().program(recipe), lie).verdict is not Verdict.PROVED


@pytest.mark.parametrize(("lie", "recipe"), LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_a_lie_is_not_proved_on_a_graph_nor_poisons_those_after_it(lie: Callable[[Any], Any], recipe: Recipe) -> None:
    trials = GraphTrials(lie)
    for _ in range(2):
        assert trials.tried(recipe).verdict is not Verdict.PROVED


def test_a_type_that_was_changed_beside_contents_is_made_anew() -> None:
    def both(program: ExportedProgram) -> Any:
        for value in program.state_dict.values():
            value.fill_(7)
        return lies.type_changed_in_place(program)

    screen = Screen()
    program = screen.builder.program(ONE)
    kept = dict(screen.builder.types)
    assert screen.open_ways(ONE, [program], *both(program))
    assert kept and not screen.builder.types


def test_what_a_pass_does_the_first_time_is_what_is_proved() -> None:
    assert GraphTrials(lies.wrong_the_first_time).tried(ONE).verdict is Verdict.REFUTED
