"""A campaign: units of work handed to an executor until the time is up, and all that they find kept and made small.

What is done is in the record as soon as it is known, and the record is all that a campaign knows: one that was
interrupted or killed goes on where it stopped. Units that were lost with a process are done again, one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis.database import ExampleDatabase

from copyproof.fuzz.campaign import corpus
from copyproof.fuzz.campaign.executors import Executors
from copyproof.fuzz.campaign.failure import Failure, Fault, Form
from copyproof.fuzz.campaign.known import Known, name_of
from copyproof.fuzz.campaign.levels import GRAPHS, MODULES, failing, level_of, program_of
from copyproof.fuzz.campaign.minimise import Minimal, minimise
from copyproof.fuzz.campaign.patience import PATIENCE
from copyproof.fuzz.campaign.pipelines import config_of
from copyproof.fuzz.campaign.record import Record
from copyproof.fuzz.campaign.unit import Outcome, Sighting, Unit, run_unit
from copyproof.fuzz.campaign.written import write_finding
from copyproof.fuzz.programs.stateful import Stateful
from copyproof.fuzz.programs.workbench import Invalid, checked
from copyproof.spec.errors import BadInput, first_line
from copyproof.verify.passes import named_pass

PROGRAMS = {MODULES: 25, GRAPHS: 400}
"""How many programs a unit has: a few seconds of work."""

_AT_THE_START = 40
_APART = 10**6
_DEATHS = 2
Work = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Settings:
    """What a campaign is about.

    Attributes:
        folder: its folder.
        pass_name: the pass, `pkg.mod:fn` or `shipped`.
        pipelines: the pipelines by name.
        levels: MODULES, GRAPHS or both.
        seed: the first seed; each unit has its own after it.
        seconds: how long to look, for this run; None for as long as there are units.
        programs: how many programs of each level and pipeline to look at; None for no bound.
        workers: how many units are worked on at once.
        known: the issues that are known.
    """

    folder: Path
    pass_name: str
    pipelines: tuple[str, ...] = ("shipped",)
    levels: tuple[str, ...] = (MODULES, GRAPHS)
    seed: int = 0
    seconds: float | None = None
    programs: int | None = None
    workers: int = 2
    known: tuple[Known, ...] = ()

    @property
    def about(self) -> dict[str, str]:
        """What a record must agree in."""
        return {"pass": self.pass_name, "seed": str(self.seed)}


@dataclass
class Campaign:
    """Runs a campaign.

    Args:
        settings: what it is about.
        record: where it is kept.
        database: the corpus.
        executors: where the work is done.
        tell: is told now and then how it goes.
    """

    settings: Settings
    record: Record
    database: ExampleDatabase
    executors: Executors
    tell: Callable[[str], None] = lambda line: None
    _running: dict[Future[Any], Work] = field(default_factory=dict)
    _suspects: list[Work] = field(default_factory=list)
    _deaths: dict[Work, int] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    _started: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Looks until the time is up or all units are done, then makes small what was found last.

        Raises:
            KeyboardInterrupt: as it came; what is done is kept.
        """
        units = self._units()
        pending = self._pending()
        finished = False
        while not finished:
            with self.executors() as executor:
                try:
                    finished = self._work(executor, units, pending)
                except BrokenProcessPool:
                    # Which of them ended the process is not known: each is done again, alone.
                    self._suspects += self._running.values()
                    self._running.clear()

    def _work(self, executor: Executor, units: Iterator[Work], pending: list[Work]) -> bool:
        while True:
            self._submit(executor, units, pending)
            if not self._running:
                return True
            finished, _ = wait(self._running, timeout=5, return_when=FIRST_COMPLETED)
            for future in finished:
                work = self._running[future]
                self._take(work, future, pending)
                del self._running[future]
            self.tell(self._told())

    def _submit(self, executor: Executor, units: Iterator[Work], pending: list[Work]) -> None:
        """Keeps the workers busy: with what is to be made small first, then with units while there is time."""
        if self._suspects:
            if not self._running:
                self._start(executor, self._suspects.pop())
            return
        while len(self._running) < self.settings.workers + 1:
            work = pending.pop(0) if pending else None if self._over() else next(units, None)
            if work is None:
                return
            self._start(executor, work)

    def _start(self, executor: Executor, work: Work) -> None:
        function, arguments = work
        self._running[executor.submit(function, *arguments)] = work

    def _over(self) -> bool:
        seconds = self.settings.seconds
        return seconds is not None and time.monotonic() - self._started > seconds

    def _take(self, work: Work, future: Future[Any], pending: list[Work]) -> None:
        """Enters what a piece of work gave."""
        try:
            result = future.result()
        except BrokenProcessPool:
            self._deaths[work] = self._deaths.get(work, 0) + 1
            if self._deaths[work] < _DEATHS or len(self._running) > 1:
                raise
            result = self._died(work, f"its process died, or took over {PATIENCE:g} s for a program, each time")
        except Exception as error:  # a worker of a cluster was lost too often, or copyproof has a fault of its own
            result = self._died(work, f"{type(error).__name__}: {first_line(error)[:200]}")
        if isinstance(result, Outcome):
            self._enter(result, pending)
        elif isinstance(result, Minimal):
            self._minimal(result)

    def _died(self, work: Work, why: str) -> Any:
        """What stands for work that cannot be done."""
        function, arguments = work
        if function is run_unit:
            unit: Unit = arguments[0]
            failure = Failure(
                Form.EAGER.value, Form.RUNTIME.value, Fault.PROCESS.name, "", f"unit {unit.key}: {why}", ""
            )
            outcome = Outcome(unit)
            outcome.found[failure.signature] = Sighting(1, "{}", failure)
            return outcome
        return Minimal(arguments[0], arguments[1], arguments[5], arguments[2], arguments[3], "", "")

    def _enter(self, outcome: Outcome, pending: list[Work]) -> None:
        known = {s: name_of(self.settings.known, s, self.settings.pass_name) for s in outcome.found}
        fresh = set(self.record.enter(outcome, known))
        for hazard, program in outcome.kept.items():
            if hazard in fresh:
                corpus.keep(self.database, program)
        if fresh & set(outcome.found):
            pending += self._pending()

    def _pending(self) -> list[Work]:
        """What is still to be made small, and has not been asked for in this run."""
        found: list[Work] = []
        for finding in self.record.findings():
            if finding.reduced or finding.signature in self._asked or finding.program == "{}":
                continue
            self._asked.add(finding.signature)
            arguments = (finding.level, finding.program, finding.failure, self.settings.pass_name, finding.pipeline)
            found.append((minimise, (finding.signature, *arguments)))
        return found

    def _minimal(self, minimal: Minimal) -> None:
        self.record.reduce(minimal)
        finding = next(f for f in self.record.findings() if f.signature == minimal.signature)
        if minimal.program:
            write_finding(self.settings.folder, finding, minimal.script, self.settings.pass_name, minimal.made)
            if minimal.level == MODULES:
                corpus.keep(self.database, minimal.program)

    def _units(self) -> Iterator[Work]:
        """The units that are not done yet: modules of each pipeline, and graphs, in turn."""
        done = self.record.done()
        start = tuple(corpus.kept(self.database))[:_AT_THE_START]
        kinds = [(MODULES, pipeline) for pipeline in self.settings.pipelines if MODULES in self.settings.levels]
        kinds += [(GRAPHS, "")] if GRAPHS in self.settings.levels else []
        for number in count(1):
            left = {kind: self._left(kind[0], number) for kind in kinds}
            if not any(left.values()):
                return
            for (level, pipeline), programs in left.items():
                # Far apart, so that campaigns with neighbouring seeds look at other programs.
                seed = self.settings.seed * _APART + number
                started = start if level == MODULES else ()
                unit = Unit(level, seed, programs, self.settings.pass_name, pipeline, started)
                if programs > done.get(unit.key, 0):
                    yield run_unit, (unit,)

    def _left(self, level: str, number: int) -> int:
        """How many programs unit `number` of a level has: less than a whole one, or none, where not more are asked."""
        if self.settings.programs is None:
            return PROGRAMS[level]
        return max(0, min(PROGRAMS[level], self.settings.programs - (number - 1) * PROGRAMS[level]))

    def _told(self) -> str:
        programs, kinds, new = self.record.counts()
        small = sum(function is minimise for function, _ in self._running.values())
        late = f"; the time is up, {small} failures are being made small" if self._over() and small else ""
        looked = ", ".join(f"{ran:,} {level} {pipeline}".rstrip() for (level, pipeline), ran in programs.items())
        return f"{looked or 'no program yet'}; {kinds} kinds of failure, {new} of them not known{late}"


def gone(known: Sequence[Known], settings: Settings, record: Record) -> None:
    """Tells the record which known issues of what the campaign looks at do not show any more with this pass."""
    write_back_pass = named_pass(settings.pass_name)
    for issue in known:
        level = level_of(issue.program)
        looked_at = level in settings.levels and (level == GRAPHS or issue.pipeline in settings.pipelines)
        if not looked_at or not issue.applies(settings.pass_name):
            continue
        try:
            failures = failing(write_back_pass, issue.pipeline)(issue.program)
        except Exception:  # whatever the pass has made of the program
            continue
        # What a pass breaks says nothing about an issue that is none of its own.
        hidden = not issue.passes and any(failure.fault == Fault.PASS.name for failure in failures)
        if not hidden and not any(issue.matches(failure.signature) for failure in failures):
            seen = "; ".join(failure.signature for failure in failures)
            record.tell_gone(issue.name, issue.why, seen or "nothing fails")


def replayed(about: dict[str, Any]) -> list[Failure]:
    """What a finding's program gives now.

    Args:
        about: what `written.read_finding` read.

    Raises:
        BadInput: it is no program, of another level, or there is no such pass or pipeline.
    """
    write_back_pass = named_pass(about["pass"])
    try:
        program = program_of(about["program"])
        if isinstance(program, Stateful):
            checked(program)
    except (KeyError, ValueError, TypeError, Invalid) as error:
        raise BadInput(f"the program of the failure is none ({first_line(error)}); copy the folder anew") from error
    if about["level"] != level_of(program):
        raise BadInput(f"the failure's level is {about['level']!r}, but its program is one of {level_of(program)}")
    if about["level"] == MODULES:
        config_of(about["pipeline"])
    return failing(write_back_pass, about["pipeline"])(program)
