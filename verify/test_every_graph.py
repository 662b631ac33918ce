"""`pytest verify`, beyond the corpus: the rule that the pass offers, for any graph, and every small program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from copyproof.spec.obligations import Verdict
from copyproof.verify.exhaustive.bounds import Bounds
from copyproof.verify.exhaustive.survey import survey
from copyproof.verify.passes import rule_of
from copyproof.verify.rule_proof import counter_model, prove_rule

_BOUNDS = Bounds(targets=2, steps=1, outputs=1)


@pytest.fixture(autouse=True)
def graphs_only(request: pytest.FixtureRequest) -> None:
    """These tests are about graphs."""
    if request.config.getoption("through"):
        pytest.skip("about graphs, and not about files")


def test_rule_of_the_pass_is_proved_for_graphs_of_any_size(write_back_pass: Callable[[Any], Any]) -> None:
    rule = rule_of(write_back_pass)
    if rule is None:
        pytest.skip("the pass offers no rule (an attribute `rule`)")
    proof = prove_rule(rule)
    if proof.verdict is not Verdict.PROVED:
        model = counter_model(rule)
        shown = model.as_lines() if model is not None else []
        pytest.fail("\n".join([*proof.as_lines(), *shown]), pytrace=False)


def test_pass_is_proved_on_every_small_program(pass_name: str, write_back_pass: Callable[[Any], Any]) -> None:
    found = survey(pass_name, _BOUNDS)
    if found.verdict is not Verdict.PROVED or found.found:
        lines = [f"{found.verdict.value} on {found.programs} programs ({found.bounds.spelled})"]
        for refuted in found.found:
            lines.append(f"{refuted.obligation.name} on {refuted.count} programs: {refuted.fault.value}; the smallest:")
            lines += [f"  {line}" for line in (*refuted.recipe.as_lines(), refuted.about)]
        lines.append(f"see it run: copyproof enumerate --pass {pass_name} --steps 1")
        pytest.fail("\n".join(lines), pytrace=False)
