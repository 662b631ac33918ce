"""One graph that torch.export never saw: what a pass makes of it, proved, and run beside the original."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from copyproof.fuzz.campaign.agreement import Runs, disagree, runs_beside, told_of
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
from copyproof.verify.passes import raised_at, run_pass
from copyproof.verify.prover import prove_result

_SHOWN = 4


@dataclass
class GraphTrial:
    """What one graph gave: the verdict (None where the pass made no program), what the runs showed, what is wrong."""

    verdict: Verdict | None
    runs: Runs
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class _Computed:
    """What the steps of `original` compute in one call, from any state: the inputs, and what every value holds."""

    original: ExportedProgram
    start: dict[str, torch.Tensor]
    arguments: tuple[torch.Tensor, ...]
    call: Call


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
    _computed: _Computed | None = None

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
        computed = self._of_steps(recipe)
        expected = _expected(recipe, computed.call)
        lap("running the original")
        program = self.screen.builder.program(recipe)
        lap("building")
        try:
            result = run_pass(self.write_back_pass, program)
            graph_module, signature = as_pair(result)
        except (BadInput, TypeError) as error:
            return GraphTrial(None, Runs.NOT_RUN, [_raised(str(error), raised_at(error))])
        lap("the pass")
        try:
            opened = self.screen.open_ways(recipe, carriers(program, result), graph_module, signature)
        except Exception as error:  # the result is so odd that it is no program
            return GraphTrial(None, Runs.NOT_RUN, [_raised(first_line(error))])
        lap("proof")
        try:
            actual = run_rewritten(computed.original, graph_module, signature, [computed.arguments], computed.start)
            found = differences([expected], actual)
        except Exception as error:  # what cannot run
            found = [f"the rewritten graph cannot run: {first_line(error)[:200]}"]
        lap("running the rewritten graph")
        verdict, runs, told = self._decided(recipe, opened, program, result, not found)
        lap("proof of what congruence leaves open")
        return GraphTrial(verdict, runs, self._failures(verdict, runs, opened, found or told))

    def _of_steps(self, recipe: Recipe) -> _Computed:
        """What the steps of a graph compute, once for all that ends them."""
        original = self.screen.original
        if self._computed is None or self._computed.original is not original:
            start = {name: _value(10 * place + 10) for place, name in enumerate(recipe.buffers)}
            arguments = tuple(_value(40 + 7 * place) for place in range(recipe.bystander + 1 - len(start)))
            (call,) = run_functional(original, [arguments], start)
            self._computed = _Computed(original, start, arguments, call)
        return self._computed

    def _decided(
        self, recipe: Recipe, opened: list[Open], given: ExportedProgram, result: Any, alike: bool
    ) -> tuple[Verdict, Runs, list[str]]:
        """The verdict, what the runs showed beside it, and what the prover says of a refutation."""
        if not opened:
            return Verdict.PROVED, Runs.ALIKE if alike else Runs.DIFFER, []
        if not alike and not self.asks:
            return Verdict.REFUTED, Runs.DIFFER, []
        # A builder of its own: what this one keeps may have been changed by the pass.
        report = prove_result(Builder().program(recipe), given, result)
        return report.verdict, runs_beside(report, alike), told_of(report)

    def _failures(self, verdict: Verdict, runs: Runs, opened: list[Open], found: list[str]) -> list[Failure]:
        forms = (Form.FUNCTIONAL.value, Form.REWRITTEN.value)
        if disagree(verdict, runs):
            shape = f"graph {verdict.value}, and {'numbers differ' if runs is Runs.DIFFER else 'no number differs'}"
            return [Failure(Form.PROVER.value, forms[1], Fault.PROVER.name, "", shape, "", tuple(found[:_SHOWN]))]
        if verdict is not Verdict.REFUTED and runs is not Runs.DIFFER:
            return []
        kinds = list(type(opened[0].fault)) if opened else []
        first = min(opened, key=lambda way: kinds.index(way.fault)) if opened else None
        obligation, shape = (first.obligation.name, first.fault.value) if first else (Obligation.FRAME.name, "")
        return [Failure(*forms, Fault.PASS.name, obligation, shape, "", tuple(found[:_SHOWN]))]


def _expected(recipe: Recipe, computed: Call) -> Call:
    """What a call of a graph gives, where one that returns every value of its steps gave `computed`."""
    new = [computed.outputs[source] for source in recipe.sources]
    count = len(recipe.buffers)
    return Call(
        tuple(computed.outputs[value] for value in recipe.outputs),
        (*new[count:], computed.inputs_after[-1]),
        dict(zip(recipe.buffers, new[:count], strict=True)),
    )


def _raised(message: str, where: str = "") -> Failure:
    shape = f"the pass fails: {without_names(message)}"
    lines = (message, where) if where else (message,)
    return Failure(Form.FUNCTIONAL.value, Form.REWRITTEN.value, Fault.PASS.name, "", shape, "", lines)


def _value(first: int) -> torch.Tensor:
    """Four numbers, no two of which are alike whichever tensors they are in."""
    return torch.tensor([1.0, 3.0, 2.0, 5.0]).reshape(SHAPE) + first
