"""A piece of a campaign's work: so many programs from one seed. It gives the same wherever and whenever it runs."""

from __future__ import annotations

import gc
import json
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings, target
from hypothesis import strategies as st

from copyproof.fuzz.campaign.agreement import Runs
from copyproof.fuzz.campaign.failure import Failure, rank, without_names
from copyproof.fuzz.campaign.graph_trial import GraphTrials
from copyproof.fuzz.campaign.hazards import Branches, hazards_of_graph, hazards_of_module
from copyproof.fuzz.campaign.levels import MODULES
from copyproof.fuzz.campaign.patience import watched
from copyproof.fuzz.programs.graphs import ENDS, families
from copyproof.fuzz.programs.stateful import Stateful
from copyproof.spec.obligations import Verdict
from copyproof.verify.exhaustive.recipe import Recipe
from copyproof.verify.passes import named_pass

ALONE = threading.Lock()
"""One unit at a time in a process: the pass's place in the pipeline is a global of executorch."""


@dataclass(frozen=True)
class Unit:
    """What to do.

    Attributes:
        level: MODULES, which go through torch.export and all forms, or GRAPHS, which are made directly.
        seed: decides the programs.
        programs: how many.
        pass_name: the pass, `pkg.mod:fn` or `shipped`.
        pipeline: the pipeline by name; empty for GRAPHS.
        corpus: modules to begin some programs with, as JSON.
    """

    level: str
    seed: int
    programs: int
    pass_name: str
    pipeline: str
    corpus: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The unit in a record: of which kind, and which."""
        return " ".join(part for part in (self.level, self.pipeline, str(self.seed)) if part)


@dataclass
class Sighting:
    """A kind of failure in one unit: how often, and the smallest program, as JSON, with its failure."""

    count: int
    program: str
    failure: Failure


@dataclass
class Outcome:
    """What a unit gave.

    Attributes:
        unit: which.
        programs: how many ran.
        rejected: how many torch.export did not take, by reason.
        skipped: how often a form did not run, by form and reason.
        found: by signature.
        agreement: how often each verdict met equal or differing runs, as `graph PROVED alike`.
        seconds: where the time went.
        coverage: how often each hazard was there, and which branches of the pass were taken.
        kept: programs that had a hazard first in this unit, as JSON.
        elapsed: seconds.
    """

    unit: Unit
    programs: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    found: dict[str, Sighting] = field(default_factory=dict)
    agreement: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    coverage: dict[str, int] = field(default_factory=dict)
    branches: set[str] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)
    elapsed: float = 0.0

    def saw(self, failure: Failure, program: Stateful | Recipe) -> None:
        """Counts a failure, and keeps its smallest program."""
        spelled = json.dumps(program.as_json())
        known = self.found.get(failure.signature)
        if known is None:
            self.found[failure.signature] = Sighting(1, spelled, failure)
            return
        known.count += 1
        if rank(spelled, failure) < rank(known.program, known.failure):
            known.program, known.failure = spelled, failure

    def agreed(self, what: str, verdict: Verdict, runs: Runs) -> None:
        """Counts a verdict beside what the runs showed."""
        key = f"{what} {verdict.value} {runs.value}"
        self.agreement[key] = self.agreement.get(key, 0) + 1


def run_unit(unit: Unit) -> Outcome:
    """Does a unit's work. Where a program comes to no end, the process ends (`patience.py`)."""
    with ALONE, warnings.catch_warnings(), watched() as begins:
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        outcome = Outcome(unit)
        (_modules if unit.level == MODULES else _graphs)(unit, outcome, begins)
        outcome.elapsed = time.perf_counter() - started
        return outcome


def _modules(unit: Unit, outcome: Outcome, begins: Callable[[], None]) -> None:
    from copyproof.fuzz.campaign.judging import failures_of, judged
    from copyproof.fuzz.campaign.trial import quiet, tried
    from copyproof.fuzz.programs.drawing import stateful_modules
    from copyproof.fuzz.tables import kept_tables

    quiet()
    write_back_pass = named_pass(unit.pass_name)
    branches = Branches(write_back_pass)

    def followed(program: Any) -> Any:
        with branches.watched():
            return write_back_pass(program)

    for name in ("rule", "__name__"):
        if hasattr(write_back_pass, name):
            setattr(followed, name, getattr(write_back_pass, name))

    def look(module: Stateful) -> None:
        begins()
        trial = tried(module, followed, unit.pipeline)
        outcome.programs += 1
        for what, seconds in trial.seconds.items():
            outcome.seconds[what] = outcome.seconds.get(what, 0.0) + seconds
        if trial.rejected:
            reason = trial.rejected[:120]
            outcome.rejected[reason] = outcome.rejected.get(reason, 0) + 1
            return
        hazards, furthest = hazards_of_module(module), 0
        if trial.original is not None:
            in_graph, furthest = hazards_of_graph(trial.original)
            hazards |= in_graph
        _cover(outcome, hazards, module)
        target(float(len(hazards)), label="hazards")
        target(float(furthest), label="steps from the new value to the last read of the old one")
        for form, why in trial.skipped.items():
            reason = f"{form.value}: {without_names(why)}"
            outcome.skipped[reason] = outcome.skipped.get(reason, 0) + 1
        for what, report, runs in judged(trial).values():
            outcome.agreed(what, report.verdict, runs)
        for failure in failures_of(trial):
            outcome.saw(failure, module)

    started = [Stateful.from_json(json.loads(text)) for text in unit.corpus]
    with kept_tables():
        phases = (Phase.generate, Phase.target)
        _each(stateful_modules(started=started), unit.seed, unit.programs, look, phases)
    outcome.branches |= branches.taken


def _graphs(unit: Unit, outcome: Outcome, begins: Callable[[], None]) -> None:
    write_back_pass = named_pass(unit.pass_name)
    trials = GraphTrials(write_back_pass)
    branches = Branches(write_back_pass)

    def look(recipe: Recipe) -> None:
        outcome.programs += 1
        if outcome.programs % _WATCHED == 0:
            with branches.watched():
                trial = trials.tried(recipe)
        else:
            trial = trials.tried(recipe)
        if trial.verdict is not None:
            outcome.agreed("graph", trial.verdict, trial.runs)
        for failure in trial.failures:
            outcome.saw(failure, recipe)
        if outcome.programs % _COLLECTED == 0:
            gc.collect()

    def look_at_all(family: list[Recipe]) -> None:
        begins()
        for recipe in family:
            look(recipe)

    # Graphs are full of cycles: what is there already is left out of the count, the rest collected now and then.
    gc.freeze()
    gc.disable()
    try:
        _each(families(), unit.seed, -(-unit.programs // ENDS), look_at_all, (Phase.generate,))
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()
    outcome.seconds.update(trials.seconds)
    outcome.branches |= branches.taken


_WATCHED = 250
_COLLECTED = 1000


def _cover(outcome: Outcome, hazards: set[str], module: Stateful) -> None:
    for hazard in hazards:
        outcome.coverage[hazard] = outcome.coverage.get(hazard, 0) + 1
        outcome.kept.setdefault(hazard, json.dumps(module.as_json()))


def _each(
    drawn: st.SearchStrategy[Any], first: int, most: int, look: Callable[[Any], None], phases: tuple[Phase, ...]
) -> None:
    """Looks at so many of what a strategy gives, from a seed."""

    @seed(first)
    @settings(
        max_examples=most,
        database=None,
        deadline=None,
        derandomize=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def one(example: Any) -> None:
        look(example)

    one()
