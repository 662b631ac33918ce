"""The two levels of program, and what is done with a program of either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from copyproof.fuzz.campaign.failure import Failure
from copyproof.fuzz.campaign.graph_trial import GraphTrials
from copyproof.fuzz.programs.stateful import Stateful
from copyproof.verify.exhaustive.recipe import Recipe

MODULES, GRAPHS = "modules", "graphs"
Program = Stateful | Recipe


def level_of(program: Program) -> str:
    """MODULES or GRAPHS."""
    return GRAPHS if isinstance(program, Recipe) else MODULES


def program_of(data: dict[str, Any]) -> Program:
    """What `as_json` of a module or graph gave, as a program again.

    Raises:
        KeyError, ValueError, TypeError: it is none.
    """
    return Stateful.from_json(data) if "holders" in data else Recipe.from_json(data)


def failing(
    write_back_pass: Callable[[Any], Any], pipeline: str, asks: bool = True
) -> Callable[[Program], list[Failure]]:
    """A function that says how a program fails, with a pass and in a pipeline; `asks` as of `GraphTrials`."""
    trials = GraphTrials(write_back_pass, asks)

    def failures(program: Program) -> list[Failure]:
        if isinstance(program, Recipe):
            return trials.tried(program).failures
        from copyproof.fuzz.campaign.judging import failures_of
        from copyproof.fuzz.campaign.trial import quiet, tried

        quiet()
        return list(failures_of(tried(program, write_back_pass, pipeline)))

    return failures
