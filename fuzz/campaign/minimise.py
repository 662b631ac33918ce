"""A finding made small and seen: its program reduced, its script written, run, and what it printed kept."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass

from copyproof.fuzz.campaign.failure import Failure, Fault
from copyproof.fuzz.campaign.graph_trial import GraphTrials
from copyproof.fuzz.campaign.reduction import reduced
from copyproof.fuzz.campaign.script import probed, script_of, shown
from copyproof.fuzz.campaign.unit import ALONE, MODULES
from copyproof.fuzz.programs.stateful import Stateful
from copyproof.verify.exhaustive.recipe import Recipe
from copyproof.verify.passes import named_pass


@dataclass(frozen=True)
class Minimal:
    """A small program that fails as a finding does.

    Attributes:
        signature: of the finding.
        program: the program, as JSON; empty where the failure did not come again.
        failure: what it shows.
        script: a standalone script; empty where none shows the failure.
        printed: what the script printed.
    """

    signature: str
    program: str
    failure: Failure
    script: str
    printed: str


def minimise(
    signature: str, level: str, program: str, failure: Failure, pass_name: str, pipeline: str, small: bool = False
) -> Minimal:
    """Makes a finding small.

    Args:
        signature: of the finding.
        level: MODULES or GRAPHS.
        program: a program that shows it, as JSON.
        failure: what that shows.
        pass_name, pipeline: as of `unit.Unit`.
        small: it is small already; only its script is made.
    """
    with ALONE, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = _module if level == MODULES else _graph
        return made(signature, program, failure, pass_name, pipeline, small)


def _module(signature: str, program: str, failure: Failure, pass_name: str, pipeline: str, small: bool) -> Minimal:
    from copyproof.fuzz.campaign.judging import failures_of
    from copyproof.fuzz.campaign.trial import quiet, tried
    from copyproof.fuzz.tables import kept_tables

    quiet()
    write_back_pass = named_pass(pass_name)
    found = {signature: failure}

    def fails(module: Stateful) -> bool:
        alike = next(
            (f for f in failures_of(tried(module, write_back_pass, pipeline)) if f.signature == signature), None
        )
        if alike is not None:
            found[signature] = alike
        return alike is not None

    module = Stateful.from_json(json.loads(program))
    with kept_tables():
        if not fails(module):
            return Minimal(signature, "", failure, "", "")
        if not small:
            module = reduced(module, fails)
    failure = found[signature]
    if failure.fault == Fault.PROVER.name:
        return Minimal(signature, json.dumps(module.as_json()), failure, "", "")
    for candidate in (module, probed(module)):
        text = script_of(candidate, failure, pass_name, pipeline)
        if printed := shown(text, numbers=not failure.shape.startswith(("does not", "no answer"))):
            return Minimal(signature, json.dumps(module.as_json()), failure, text, printed)
    return Minimal(signature, json.dumps(module.as_json()), failure, "", "")


def _graph(signature: str, program: str, failure: Failure, pass_name: str, pipeline: str, small: bool) -> Minimal:
    from copyproof.verify.exhaustive.script import seen

    trials = GraphTrials(named_pass(pass_name))
    found = {signature: failure}

    def fails(recipe: Recipe) -> bool:
        alike = next((f for f in trials.tried(recipe).failures if f.signature == signature), None)
        if alike is not None:
            found[signature] = alike
        return alike is not None

    recipe = Recipe.from_json(json.loads(program))
    if not fails(recipe):
        return Minimal(signature, "", failure, "", "")
    if not small:
        recipe = reduced(recipe, fails, most=400)
    failure = found[signature]
    script = None
    if failure.fault != Fault.PROVER.name:
        script = seen(recipe, pass_name, f"{failure.obligation}: {failure.shape}")
    text, printed = (script.text, script.printed) if script is not None else ("", "")
    return Minimal(signature, json.dumps(recipe.as_json()), failure, text, printed)
