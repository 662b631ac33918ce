"""Each constraint of the rule is needed: without it a graph goes wrong, and the wrong numbers are seen."""

from __future__ import annotations

import pytest

from copyproof.fuzz.ablation import ablation, recipe_of
from copyproof.fuzz.model_run import numbers_of
from copyproof.impl import early_placement
from copyproof.spec.obligations import Verdict
from copyproof.spec.rule import REFERENCE
from copyproof.verify import prove_pass
from copyproof.verify.exhaustive.build import Builder
from copyproof.verify.rule_proof import CounterModel, counter_model

IN_RUNTIME = {"direct-reads", "lowered-view-reads", "copy-reads", "escapes", "cycles"}
"""Constraints whose counterexample the pipeline can lower: in-place steps and views by schema it cannot."""
NO_PROGRAM = {"placeholders", "source-definition"}
"""Without these the pass makes a graph that uses what is not there yet."""
QUICK = ("lowered-view-reads", "self-overlap")
NAMES = [
    pytest.param(c.name, id=c.name, marks=[] if c.name in QUICK else [pytest.mark.slow]) for c in REFERENCE.constraints
]


def model_without(name: str) -> CounterModel:
    """The counter-model of the reference rule without a constraint."""
    model = counter_model(REFERENCE.without(name))
    assert model is not None
    return model


@pytest.mark.parametrize("name", NAMES)
def test_without_a_constraint_wrong_numbers_are_seen(name: str) -> None:
    found = ablation((name,), model_without(name))
    assert "expected" in found.printed and "got" in found.printed
    if name in IN_RUNTIME:
        assert found.where == "runtime"
        assert found.seen is not None and "run_method" in found.seen.text
    elif name in NO_PROGRAM:
        assert found.seen is None and found.where.startswith("counter-model")


@pytest.mark.parametrize("name", [c.name for c in REFERENCE.constraints if c.name not in NO_PROGRAM])
def test_pass_with_a_weakened_rule_is_refuted_on_its_counter_model_and_with_the_whole_rule_proved(name: str) -> None:
    recipe = recipe_of(model_without(name))
    assert recipe.live
    weakened = prove_pass(Builder().program(recipe), early_placement(REFERENCE.without(name)))
    assert weakened.verdict is Verdict.REFUTED, weakened
    assert prove_pass(Builder().program(recipe), early_placement()).strict_verdict is Verdict.PROVED


@pytest.mark.parametrize("name", [c.name for c in REFERENCE.constraints])
def test_executing_a_counter_model_gives_other_numbers_unless_only_a_step_that_nothing_uses_is_wrong(name: str) -> None:
    model = model_without(name)
    dead_read = any(step.name == "_" and step.operator == "read" for step in model.steps)
    assert bool(numbers_of(model)) or dead_read
