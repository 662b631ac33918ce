"""A finding made small and seen: its program reduced, its script written, run, and what it printed kept."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass

from copyproof.fuzz.campaign.failure import Failure, Fault
from copyproof.fuzz.campaign.levels import Program, failing, program_of
from copyproof.fuzz.campaign.reduction import reduced
from copyproof.fuzz.campaign.script import probed, script_of, shown
from copyproof.fuzz.campaign.unit import ALONE
from copyproof.fuzz.programs.stateful import Stateful
from copyproof.fuzz.tables import kept_tables
from copyproof.verify.exhaustive.recipe import Recipe
from copyproof.verify.exhaustive.script import seen
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
    with ALONE, warnings.catch_warnings(), kept_tables():
        warnings.simplefilter("ignore")
        return _minimised(signature, program_of(json.loads(program)), failure, pass_name, pipeline, small)


def _minimised(
    signature: str, program: Program, failure: Failure, pass_name: str, pipeline: str, small: bool
) -> Minimal:
    failures = failing(named_pass(pass_name), pipeline, asks=failure.fault == Fault.PROVER.name)
    found = failure

    def fails(candidate: Program) -> bool:
        nonlocal found
        alike = next((f for f in failures(candidate) if f.signature == signature), None)
        found = alike or found
        return alike is not None

    if not fails(program):
        return Minimal(signature, "", failure, "", "")
    if not small:
        program = reduced(program, fails, _TRIES[type(program)])
    text, printed = _shown(program, found, pass_name, pipeline) if found.fault != Fault.PROVER.name else ("", "")
    return Minimal(signature, json.dumps(program.as_json()), found, text, printed)


def _shown(program: Program, failure: Failure, pass_name: str, pipeline: str) -> tuple[str, str]:
    """A script that shows a failure, and what it printed; nothing where none shows it."""
    if isinstance(program, Recipe):
        script = seen(program, pass_name, f"{failure.obligation}: {failure.shape}")
        return (script.text, script.printed) if script is not None else ("", "")
    for candidate in (program, probed(program)):
        text = script_of(candidate, failure, pass_name, pipeline)
        if printed := shown(text, numbers=not failure.shape.startswith(("does not", "no answer"))):
            return text, printed
    return "", ""


_TRIES: dict[type[Program], int] = {Stateful: 120, Recipe: 400}
"""How many programs are tried at most; those of a module go through torch.export."""
