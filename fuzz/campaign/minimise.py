"""A finding made small and seen: its program reduced, its script written, run, and what it printed kept."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch.fx import Node

from copyproof.fuzz.campaign.failure import Failure, Fault
from copyproof.fuzz.campaign.levels import Program, failing, level_of, program_of
from copyproof.fuzz.campaign.patience import watched
from copyproof.fuzz.campaign.reduction import reduced
from copyproof.fuzz.campaign.script import probed, script_of, shown
from copyproof.fuzz.campaign.unit import ALONE
from copyproof.fuzz.programs.stateful import Stateful
from copyproof.fuzz.tables import kept_tables
from copyproof.spec.errors import BadInput
from copyproof.spec.graph import action_of
from copyproof.spec.pipeline import REFERENCE_PASS, as_pair
from copyproof.verify.exhaustive.build import Builder
from copyproof.verify.exhaustive.recipe import Recipe
from copyproof.verify.exhaustive.script import seen
from copyproof.verify.passes import named_pass, run_pass


@dataclass(frozen=True)
class Minimal:
    """A small program that fails as a finding does.

    Attributes:
        signature: of the finding.
        level, pipeline: of the program; the finding may have been seen on another level or in another pipeline since.
        program: the program, as JSON; empty where the failure did not come again.
        failure: what it shows.
        script: a standalone script; empty where none shows the failure.
        printed: what the script printed.
        made: what the pass made of the program, line by line; nothing where it raised.
    """

    signature: str
    level: str
    pipeline: str
    program: str
    failure: Failure
    script: str
    printed: str
    made: tuple[str, ...] = ()


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
    with ALONE, warnings.catch_warnings(), kept_tables(), watched() as begins:
        warnings.simplefilter("ignore")
        return _minimised(signature, program_of(json.loads(program)), failure, pass_name, pipeline, small, begins)


def _minimised(
    signature: str,
    program: Program,
    failure: Failure,
    pass_name: str,
    pipeline: str,
    small: bool,
    begins: Callable[[], None],
) -> Minimal:
    failures = failing(named_pass(pass_name), pipeline, asks=failure.fault == Fault.PROVER.name)
    found = failure

    def fails(candidate: Program) -> bool:
        nonlocal found
        begins()
        alike = next((f for f in failures(candidate) if f.signature == signature), None)
        if alike is not None and failure.in_numbers and not alike.in_numbers:
            return False
        found = alike or found
        return alike is not None

    if not fails(program):
        return Minimal(signature, level_of(program), pipeline, "", failure, "", "")
    if not small:
        program = reduced(program, fails, _TRIES[type(program)])
    begins()
    if found.fault in _BEHIND and _right_otherwise(program, found, pipeline):
        found = replace(found, lines=(*found.lines, _RIGHT_OTHERWISE))
    asked = (program, found, pass_name, pipeline, begins)
    text, printed = _shown(*asked) if found.fault != Fault.PROVER.name else ("", "")
    begins()
    made = _made(program, pass_name, pipeline)
    return Minimal(signature, level_of(program), pipeline, json.dumps(program.as_json()), found, text, printed, made)


def _made(program: Program, pass_name: str, pipeline: str) -> tuple[str, ...]:
    """The graph that a pass makes of a program, a line for each node; nothing where it makes none."""
    write_back_pass = named_pass(pass_name)
    if isinstance(program, Recipe):
        try:
            graph_module, _ = as_pair(run_pass(write_back_pass, Builder().program(program)))
        except (BadInput, TypeError):
            return ()
    else:
        from copyproof.fuzz.campaign.trial import tried

        rewritten = tried(program, write_back_pass, pipeline).rewritten
        if rewritten is None:
            return ()
        graph_module = rewritten[0]
    return tuple(_line(node) for node in graph_module.graph.nodes)


def _line(node: Node) -> str:
    if node.op == "output":
        return f"return {node.args[0]}"
    if node.op != "call_function":
        return f"{node.name} = {node.op}"
    given = [*map(str, node.args), *(f"{name}={value}" for name, value in node.kwargs.items())]
    return f"{node.name} = {action_of(node).name}({', '.join(given)})"


def _right_otherwise(program: Program, failure: Failure, pipeline: str) -> bool:
    """Whether a program that fails behind the pass does not fail so with the reference pass."""
    return all(other.signature != failure.signature for other in failing(named_pass(REFERENCE_PASS), pipeline)(program))


def _shown(
    program: Program, failure: Failure, pass_name: str, pipeline: str, begins: Callable[[], None]
) -> tuple[str, str]:
    """A script that shows a failure, and what it printed; nothing where none shows it."""
    begins()
    if isinstance(program, Recipe):
        script = seen(program, pass_name, f"{failure.obligation}: {failure.shape}")
        return (script.text, script.printed) if script is not None else ("", "")
    for candidate in (program, probed(program)):
        begins()
        text = script_of(candidate, failure, pass_name, pipeline)
        if printed := shown(text, numbers=not failure.raised):
            return text, printed
    return "", ""


_BEHIND = (Fault.LATER.name, Fault.PLAN.name, Fault.UNPLANNED.name, Fault.FILE.name)
_RIGHT_OTHERWISE = (
    "with the reference pass the program does not fail so: what this pass returns, or where it writes, brings it about"
)
_TRIES: dict[type[Program], int] = {Stateful: 120, Recipe: 400}
"""How many programs are tried at most; those of a module go through torch.export."""
