"""Running a pass on every program within bounds and proving what it made: by a screen, then what is open by the prover.

The work is cut into blocks, which processes take one by one. What a block gave is kept in a file as soon as it is done,
so that an interrupted survey goes on where it stopped; the file knows the pass by its source, and is put aside once
that has changed.
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.pipeline import as_pair, carriers
from copyproof.verify.exhaustive.bounds import Bounds, Frame, blocks, completed, count_of_blocks
from copyproof.verify.exhaustive.ledger import Ledger
from copyproof.verify.exhaustive.processes import processes
from copyproof.verify.exhaustive.recipe import Recipe
from copyproof.verify.exhaustive.screen import Fault, Open, Screen
from copyproof.verify.exhaustive.tally import KEPT, BlockTally, Key, Sighting
from copyproof.verify.passes import named_pass, rule_of, run_pass
from copyproof.verify.prover import prove_pass
from copyproof.verify.verdicts import Report


@dataclass(frozen=True)
class Refuted:
    """The smallest program on which a kind of fault was decided by the prover.

    Attributes:
        obligation, fault: what is open there.
        recipe: the program.
        verdict: the prover's, on that obligation; REFUTED for a pass that raises.
        report: the prover's report; None where the pass raises or the fault is one of quality.
        about: what is known where there is no report.
        count: on how many programs the fault is open.
    """

    obligation: Obligation
    fault: Fault
    recipe: Recipe
    verdict: Verdict
    report: Report | None
    about: str
    count: int


@dataclass
class Survey:
    """What is known of a pass on all programs within bounds.

    Attributes:
        pass_name, bounds, shard: what was asked: shard k of n is (k, n).
        blocks, done, kept: how many blocks the shard has, how many are done, and how many of those were so before.
        programs, closed: how many programs were judged, and how many have no safety obligation open.
        found: the smallest program for each kind of fault.
        seconds: of work, over all processes.
        elapsed: of this run, from start to end.
    """

    pass_name: str
    bounds: Bounds
    shard: tuple[int, int]
    blocks: int
    done: int = 0
    kept: int = 0
    programs: int = 0
    closed: int = 0
    found: list[Refuted] = field(default_factory=list)
    seconds: float = 0.0
    elapsed: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether every program of the shard was judged."""
        return self.done == self.blocks

    @property
    def verdict(self) -> Verdict:
        """REFUTED where a fault was seen; PROVED where all programs were judged and none is open."""
        faults = [refuted.verdict for refuted in self.found if refuted.obligation.safety]
        if Verdict.REFUTED in faults:
            return Verdict.REFUTED
        if faults or not self.complete or not self.programs or self.closed < self.programs:
            return Verdict.UNKNOWN
        return Verdict.PROVED

    @property
    def rate(self) -> float:
        """Programs per second and process."""
        return self.programs / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """The survey as plain dictionaries and lists."""
        return {
            "pass": self.pass_name,
            "verdict": self.verdict.value,
            "bounds": self.bounds.spelled,
            "shard": list(self.shard),
            "complete": self.complete,
            "blocks": self.blocks,
            "blocks_done": self.done,
            "programs": self.programs,
            "proved": self.closed,
            "programs_per_second_and_process": round(self.rate, 1),
            "found": [
                {
                    "obligation": r.obligation.name,
                    "fault": r.fault.name,
                    "meaning": r.fault.value,
                    "verdict": r.verdict.value,
                    "programs": r.count,
                    "program": r.recipe.as_json(),
                    "about": r.about,
                    "report": r.report.as_json() if r.report is not None else None,
                }
                for r in self.found
            ],
        }


Progress = Callable[[Survey], None]


def survey(
    pass_name: str,
    bounds: Bounds,
    *,
    shard: tuple[int, int] = (1, 1),
    workers: int = 0,
    folder: Path | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Survey:
    """Runs a pass on all programs within bounds, and proves or refutes what it made.

    Args:
        pass_name: `pkg.mod:fn`, or `shipped`. Where the pass has an attribute `rule`, its positions are checked too.
        bounds: which programs.
        shard: (k, n): only every n-th block, beginning with the k-th.
        workers: processes; 0 works in this one, where nothing ends a pass that does not return.
        folder: keeps what is done; what is done there already is gone on with.
        seconds: stop after about so long; the survey is then not complete.
        progress: called with what is known so far, after each block.

    Raises:
        BadInput: there is no such pass, or it raises on the very first program; the shard has no block; the folder
            cannot be written; a process died.
    """
    started = time.perf_counter()
    judge = _judge(pass_name)
    _require_some_result(judge, bounds)
    total = count_of_blocks(bounds)
    mine = len(range(shard[0] - 1, total, shard[1]))
    if not mine:
        raise BadInput(f"shard {shard[0]}/{shard[1]} has nothing to do: there are {total} blocks; take fewer shards")
    found = Survey(pass_name, bounds, shard, mine)
    kept: dict[Key, list[Sighting]] = {}
    counts: dict[Key, int] = {}
    book = Ledger(folder, pass_name, bounds, shard)

    def enter(tally: BlockTally) -> None:
        found.done += 1
        found.programs += tally.programs
        found.closed += tally.closed
        found.seconds += tally.seconds
        for key, count in tally.counts.items():
            counts[key] = counts.get(key, 0) + count
            kept[key] = heapq.nsmallest(KEPT, [*kept.get(key, ()), *tally.first[key]], key=lambda s: s.order)
        found.elapsed = time.perf_counter() - started

    with book:
        done = set()
        for tally in book.tallies():
            if 0 <= tally.number < total and tally.number % shard[1] == shard[0] - 1:
                done.add(tally.number)
                enter(tally)
        found.kept = len(done)
        rest = (
            (number, frames)
            for number, frames in enumerate(blocks(bounds))
            if number % shard[1] == shard[0] - 1 and number not in done
        )
        end = None if seconds is None else started + seconds
        for tally in _worked(pass_name, bounds.outputs, rest, workers, end):
            book.keep(tally)
            enter(tally)
            if progress is not None:
                progress(found)
    for key in sorted(kept, key=lambda k: (kept[k][0].order, k[0].name, k[1].name)):
        decided = _decided(judge, key, kept[key], counts[key])
        if (decided.obligation, decided.fault) not in {(r.obligation, r.fault) for r in found.found}:
            found.found.append(decided)
    found.elapsed = time.perf_counter() - started
    return found


@dataclass
class _Judge:
    """A pass, and the screen for what it makes."""

    write_back_pass: Callable[[Any], Any]
    screen: Screen

    def block(self, number: int, frames: tuple[Frame, ...], outputs: int) -> BlockTally:
        """Judges the programs of a block."""
        started = time.perf_counter()
        tally = BlockTally(number)
        # Graphs are full of cycles: collected once for a block, and not while it runs.
        gc.disable()
        try:
            for frame in frames:
                for recipe in completed(frame, outputs):
                    self._program(tally, recipe)
        finally:
            gc.enable()
            gc.collect()
        tally.seconds = time.perf_counter() - started
        return tally

    def _program(self, tally: BlockTally, recipe: Recipe) -> None:
        place = tally.programs
        tally.programs += 1
        opened = self.open_ways(recipe)
        tally.closed += not any(way.obligation.safety for way in opened)
        seen = set()
        for way in opened:
            key = (way.obligation, way.fault)
            if key in seen:
                continue
            seen.add(key)
            tally.counts[key] = tally.counts.get(key, 0) + 1
            first = tally.first.setdefault(key, [])
            first.append(Sighting(tally.number, place, recipe, way.about))
            if len(first) > KEPT:
                first.remove(max(first, key=lambda s: s.order))

    def open_ways(self, recipe: Recipe) -> list[Open]:
        """What is open about what the pass makes of a program."""
        program = self.screen.builder.program(recipe)
        try:
            result = run_pass(self.write_back_pass, program)
            graph_module, signature = as_pair(result)
            return self.screen.open_ways(recipe, carriers(program, result), graph_module, signature)
        except (BadInput, TypeError) as error:
            return [Open(Obligation.OUTPUT, Fault.RAISES, str(error))]
        except Exception as error:  # the result is so odd that the screen fails on it
            return [Open(Obligation.OUTPUT, Fault.RAISES, first_line(error))]


@cache
def _judge(pass_name: str) -> _Judge:
    """The judge of a pass; made once in each process."""
    found = named_pass(pass_name)
    return _Judge(found, Screen(rule=rule_of(found)))


def _require_some_result(judge: _Judge, bounds: Bounds) -> None:
    """Raises BadInput where a pass fails on the smallest programs already."""
    for recipe in completed(next(iter(blocks(bounds)))[0], bounds.outputs):
        for way in judge.open_ways(recipe):
            if way.fault is Fault.RAISES:
                raise BadInput(
                    f"the pass fails on the smallest program already ({'; '.join(recipe.as_lines())}): {way.about}"
                )
        return


def _work(pass_name: str, outputs: int, number: int, frames: tuple[Frame, ...]) -> BlockTally:
    return _judge(pass_name).block(number, frames, outputs)


def _worked(
    pass_name: str,
    outputs: int,
    rest: Iterator[tuple[int, tuple[Frame, ...]]],
    workers: int,
    end: float | None,
) -> Iterator[BlockTally]:
    """What each block gives, as soon as it is known, until the time is up; never more blocks waiting than keep the
    workers busy. Workers that are not done by then are ended."""
    if not workers:
        for number, frames in rest:
            yield _judge(pass_name).block(number, frames, outputs)
            if end is not None and time.perf_counter() > end:
                return
        return
    running: set[Future[BlockTally]] = set()
    with processes(workers) as pool:
        for number, frames in rest:
            running.add(pool.submit(_work, pass_name, outputs, number, frames))
            if len(running) < 2 * workers:
                continue
            finished, running = wait(running, timeout=_left(end), return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()
            if not finished or _left(end) == 0:
                return
        while running:
            finished, running = wait(running, timeout=_left(end), return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()
            if not finished:
                return


def _left(end: float | None) -> float | None:
    """The seconds that are left."""
    return None if end is None else max(0.0, end - time.perf_counter())


def _decided(judge: _Judge, key: Key, sightings: list[Sighting], count: int) -> Refuted:
    """What the prover says of a fault, on the smallest program where its verdict is the worst."""
    obligation, fault = key
    first = sightings[0]
    if not obligation.safety:
        return Refuted(obligation, fault, first.recipe, Verdict.REFUTED, None, first.about, count)
    unknown: Refuted | None = None
    for sighting in sightings:
        program = Screen().builder.program(sighting.recipe)
        try:
            report = prove_pass(program, judge.write_back_pass)
        except BadInput as error:
            raised = Obligation.OUTPUT, Fault.RAISES
            return Refuted(*raised, sighting.recipe, Verdict.REFUTED, None, str(error), count)
        verdict = report[obligation].verdict
        decided = Refuted(obligation, fault, sighting.recipe, verdict, report, sighting.about, count)
        if verdict is Verdict.REFUTED:
            return decided
        unknown = unknown or decided
    assert unknown is not None
    return unknown
