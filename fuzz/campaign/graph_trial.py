"""One graph that torch.export never saw: what a pass makes of it, proved, and run beside the original."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from copyproof.fuzz.campaign.agreement import Runs, disagree, runs_beside
from copyproof.fuzz.campaign.failure import Failure, Fault, Form, without_names
from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import Call
from copyproof.fuzz.forms import run_functional, run_rewritten
from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.pipeline import as_pair, carriers
from copyproof.verify.exhaustive.build import SHAPE, Builder
from copyproof.verify.exhaustive.recipe import Recipe
from copyproof.verify.exhaustive.screen import Open, Screen
from copyproof.verify.passes import run_pass
from copyproof.verify.prover import prove_result

_SHOWN = 4


@dataclass
class GraphTrial:
    """What one graph gave: the verdict (None where the pass made no program), what the runs showed, what is wrong."""

    verdict: Verdict | None
    runs: Runs
    failures: list[Failure] = field(default_factory=list)


@dataclass
class GraphTrials:
    """Tries graphs with one pass; those with the same steps one after the other, since they share what the steps mean.

    Args:
        write_back_pass: the pass.
        asks: whether the solver decides what congruence leaves open; otherwise numbers that differ refute on their own.
    """

    write_back_pass: Callable[[Any], Any]
    asks: bool = True
    screen: Screen = field(default_factory=Screen)
    seconds: dict[str, float] = field(default_factory=dict)
    _original: ExportedProgram | None = None

    def tried(self, recipe: Recipe) -> GraphTrial:
        """Runs the pass on a graph, proves what it made, and runs both."""
        clock = time.perf_counter()

        def lap(what: str) -> None:
            nonlocal clock
            now = time.perf_counter()
            self.seconds[what] = self.seconds.get(what, 0.0) + now - clock
            clock = now

        self.screen.take_up(recipe)
        lap("proof")
        expected = self._expected(recipe)
        lap("running the original")
        program = self.screen.builder.program(recipe)
        lap("building")
        try:
            result = run_pass(self.write_back_pass, program)
            graph_module, signature = as_pair(result)
        except (BadInput, TypeError) as error:
            return GraphTrial(None, Runs.NOT_RUN, [_raised(str(error))])
        lap("the pass")
        original = self.screen.original
        try:
            opened = self.screen.open_ways(recipe, carriers(program, result), graph_module, signature)
        except Exception as error:  # the result is so odd that it is no program
            return GraphTrial(None, Runs.NOT_RUN, [_raised(first_line(error))])
        lap("proof")
        try:
            found = differences([expected], run_rewritten(original, graph_module, signature, self._calls, self._start))
        except Exception as error:  # what cannot run
            found = [f"the rewritten graph cannot run: {first_line(error)[:200]}"]
        lap("running the rewritten graph")
        verdict, runs = self._decided(recipe, opened, program, result, not found)
        lap("proof of what congruence leaves open")
        return GraphTrial(verdict, runs, self._failures(verdict, runs, opened, found))

    def _expected(self, recipe: Recipe) -> Call:
        """What one call gives: every value of the steps is computed once, for all that ends them."""
        if self.screen.original is not self._original:
            self._original = self.screen.original
            count = len(recipe.buffers)
            self._start = {name: _value(10 * place + 10) for place, name in enumerate(recipe.buffers)}
            self._calls = [tuple(_value(40 + 7 * place) for place in range(recipe.bystander + 1 - count))]
            (call,) = run_functional(self._original, self._calls, self._start)
            self._values, self._bystander = call.outputs, call.inputs_after[-1]
        new = [self._values[source] for source in recipe.sources]
        inputs = new[len(recipe.buffers) :]
        state = dict(zip(recipe.buffers, new, strict=False))
        return Call(tuple(self._values[value] for value in recipe.outputs), (*inputs, self._bystander), state)

    def _decided(
        self, recipe: Recipe, opened: list[Open], given: ExportedProgram, result: Any, alike: bool
    ) -> tuple[Verdict, Runs]:
        if not opened:
            return Verdict.PROVED, Runs.ALIKE if alike else Runs.DIFFER
        if not alike and not self.asks:
            return Verdict.REFUTED, Runs.DIFFER
        # A builder of its own: what this one keeps may have been changed by the pass.
        report = prove_result(Builder().program(recipe), given, result)
        return report.verdict, runs_beside(report, alike)

    def _failures(self, verdict: Verdict, runs: Runs, opened: list[Open], found: list[str]) -> list[Failure]:
        forms = (Form.FUNCTIONAL.value, Form.REWRITTEN.value)
        if disagree(verdict, runs):
            shape = f"graph {verdict.value}, and {'numbers differ' if found else 'no number differs'}"
            return [Failure(Form.PROVER.value, forms[1], Fault.PROVER.name, "", shape, "", tuple(found[:_SHOWN]))]
        if verdict is not Verdict.REFUTED and runs is not Runs.DIFFER:
            return []
        kinds = list(type(opened[0].fault)) if opened else []
        first = min(opened, key=lambda way: kinds.index(way.fault)) if opened else None
        obligation, shape = (first.obligation.name, first.fault.value) if first else (Obligation.FRAME.name, "")
        return [Failure(*forms, Fault.PASS.name, obligation, shape, "", tuple(found[:_SHOWN]))]


def _raised(message: str) -> Failure:
    shape = f"the pass fails: {without_names(message)}"
    return Failure(Form.FUNCTIONAL.value, Form.REWRITTEN.value, Fault.PASS.name, "", shape, "", (message,))


def _value(first: int) -> torch.Tensor:
    """Four numbers, no two of which are alike whichever tensors they are in."""
    return torch.tensor([1.0, 3.0, 2.0, 5.0]).reshape(SHAPE) + first
