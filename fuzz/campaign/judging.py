"""What is wrong with a trial: which forms differ, at whose fault, and whether a proof and a run disagree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from copyproof.fuzz.campaign.agreement import Runs, disagree, runs_beside, told_of
from copyproof.fuzz.campaign.failure import Failure, Fault, Form, without_names
from copyproof.fuzz.campaign.trial import Trial
from copyproof.fuzz.compare import differences
from copyproof.spec.effects import EXECUTORCH
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.verify.exhaustive import screen
from copyproof.verify.pair import pair_of
from copyproof.verify.verdicts import Report

_SHOWN = 4


def failures_of(trial: Trial) -> Iterator[Failure]:
    """What is wrong: each two neighbouring forms that differ; that something does not lower or run, where nothing
    differs; and where a verdict and a run disagree."""
    found = list(_differing(trial))
    if by_the_pass := _unseen(trial, found):
        found = [by_the_pass, *(f for f in found if f.fault not in _AFTER or not _goes_on_with(trial))]
    yield from found or _not_running(trial)
    yield from _disagreements(trial)


_AFTER = (Fault.LATER.name, Fault.UNPLANNED.name)


def _unseen(trial: Trial, found: Sequence[Failure]) -> Failure | None:
    """The failure of a rewritten graph that is refuted though its calls show no other numbers: it writes twice, its
    signature is wrong, it cannot run, or other contents than those of the calls show it; None where there is none."""
    graph = trial.graph_report
    if graph is None or graph.verdict is not Verdict.REFUTED or any(f.fault == Fault.PASS.name for f in found):
        return None
    if runs_beside(graph, trial.alike(Form.REWRITTEN)) is Runs.ALIKE:
        return None
    forms = (Form.FUNCTIONAL.value, Form.REWRITTEN.value)
    return Failure(*forms, Fault.PASS.name, *_of_graph(trial), trial.pipeline, tuple(told_of(graph)[:_SHOWN]))


def _goes_on_with(trial: Trial) -> bool:
    """Whether what the pass broke can show in later stages alone: contents of the program, or a graph that does not
    run."""
    frame = trial.graph_report[Obligation.FRAME] if trial.graph_report is not None else None
    changed = frame is not None and frame.verdict is Verdict.REFUTED and frame.structural
    return changed or Form.REWRITTEN in trial.skipped


def _differing(trial: Trial) -> Iterator[Failure]:
    chain = [form for form in Form if form in trial.forms]
    for left, right in pairwise(chain):
        before = trial.forms[left]
        if left is Form.REWRITTEN and trial.from_zero is not None:
            if lines := differences(before, trial.from_zero):
                fault, name = Fault.FILE.name, Obligation.INIT.name
                shown = tuple(lines[:_SHOWN])
                yield Failure(left.value, Form.RUNTIME.value, fault, name, "", trial.pipeline, shown)
            before = trial.from_zero
        if lines := differences(before, trial.forms[right]):
            yield _difference(trial, left, right, lines)


def _not_running(trial: Trial) -> Iterator[Failure]:
    functional, rewritten, runtime = Form.FUNCTIONAL, Form.REWRITTEN, Form.RUNTIME
    if trial.fails_to_lower:
        ran = rewritten in trial.forms
        fault = Fault.UNPLANNED if ran else Fault.PASS if trial.original is not None else Fault.EARLY
        why, shape = f"to_executorch fails: {trial.fails_to_lower}", "does not lower"
        yield _failure(trial, rewritten if ran else functional, runtime, fault, why, shape)
    elif rewritten in trial.skipped:
        yield _failure(trial, functional, rewritten, Fault.PASS, trial.skipped[rewritten], "does not run")
    elif runtime in trial.skipped:
        left = Form.PLANNED if Form.PLANNED in trial.forms else rewritten
        yield _failure(trial, left, runtime, Fault.FILE, trial.skipped[runtime], "no answer")


def _failure(trial: Trial, left: Form, right: Form, fault: Fault, why: str, shape: str) -> Failure:
    """The failure of something that raises, or gives no answer."""
    shape = f"{shape}: {without_names(why)}"
    return Failure(
        left.value, right.value, fault.name, "", shape, trial.pipeline, (why, *filter(None, [trial.raised_at]))
    )


def _difference(trial: Trial, left: Form, right: Form, lines: list[str]) -> Failure:
    fault = {
        Form.FUNCTIONAL: Fault.EXPORT if trial.edge_differs else Fault.EARLY,
        Form.REWRITTEN: Fault.PASS,
        Form.PLANNED: Fault.UNPLANNED,
        Form.RUNTIME: Fault.FILE if left is Form.PLANNED else Fault.UNPLANNED,
    }[right]
    obligation, shape = "", _apart(lines)
    graph, file = trial.graph_report, trial.file_report
    if fault is Fault.PASS and graph is not None and graph.verdict is Verdict.REFUTED:
        obligation, shape = _of_graph(trial)
    elif right is Form.RUNTIME and _another_count(lines):
        # How much a file returns is settled where it is emitted, whatever else is wrong with it.
        fault = Fault.FILE
    elif (
        file is not None
        and file.verdict is Verdict.REFUTED
        and (fault is Fault.UNPLANNED or (fault is Fault.FILE and Obligation.PLAN in _refuted(file)))
    ):
        # The arenas of the planned form are filled by PyTorch's kernels, which compute before they write.
        fault, obligation, shape = _after_the_pass(trial, file)
    return Failure(left.value, right.value, fault.name, obligation, shape, trial.pipeline, tuple(lines[:_SHOWN]))


def _apart(lines: Sequence[str]) -> str:
    """In what two runs differ, without the numbers."""
    kinds = _another_count(lines) or any(re.search(r"expected \w+\[", line) for line in lines)
    return "another type or shape" if kinds else "other numbers"


def _another_count(lines: Sequence[str]) -> bool:
    """Whether one of two runs returned more values than the other."""
    return any("values, got" in line for line in lines)


def _of_graph(trial: Trial) -> tuple[str, str]:
    """The obligation that a rewritten graph breaks, and how; of several ways the first one of `screen.Fault`."""
    assert trial.original is not None and trial.rewritten is not None
    assert trial.graph_report is not None
    broken = _refuted(trial.graph_report)
    ways = [
        w for w in screen.ways_open(pair_of(trial.original, *trial.rewritten, EXECUTORCH)) if w.obligation in broken
    ]
    if not ways:
        # Contents that the pass changed are no way that its graph leaves open.
        return Obligation.FRAME.name, screen.Fault.CONTENTS.value if Obligation.FRAME in broken else ""
    kinds = list(type(ways[0].fault))
    first = min(ways, key=lambda way: kinds.index(way.fault))
    return first.obligation.name, first.fault.value


def _after_the_pass(trial: Trial, file: Report) -> tuple[Fault, str, str]:
    """At whose fault a refuted file is after the write-back pass, the obligation that it breaks, and how."""
    if trial.unplanned_report is None:
        return Fault.UNPLANNED, *_of_file(file)
    before = _refuted(trial.unplanned_report)
    if not before:
        return Fault.PLAN, *_of_file(file)
    # What the pass broke is broken without the plan too: runs tell whether anything else is.
    expected = trial.forms.get(Form.REWRITTEN) if trial.from_zero is None else trial.from_zero
    if trial.unplanned is not None and expected is not None and not differences(expected, trial.unplanned):
        return Fault.PLAN, *_of_file(file, but=before)
    return Fault.LATER, *_of_file(file)


def _refuted(report: Report) -> frozenset[Obligation]:
    """The safety obligations that a report refutes."""
    return frozenset(f.obligation for f in report.findings if f.verdict is Verdict.REFUTED and f.obligation.safety)


def _of_file(report: Report, but: frozenset[Obligation] = frozenset()) -> tuple[str, str]:
    """The obligation that a file breaks, and how: the first one that is not about its start, nor one of `but`."""
    broken = _refuted(report) - but - {Obligation.INIT}
    others = [finding for finding in report.findings if finding.obligation in broken]
    if not others:
        return "", "other numbers"
    # How the plan goes wrong is told under PLAN, whatever it does to outputs and state.
    conflict = next((conflict for finding in others for conflict in finding.conflicts), None)
    if conflict is None:
        return others[0].obligation.name, ""
    write, read, last = (_role(name) for name in (conflict.write, conflict.read, conflict.last_write))
    return others[0].obligation.name, f"{write} over {last} before {read}"


def _role(name: str) -> str:
    """What a step of a conflict is, without its name."""
    if name == "nothing":
        return name
    if name.startswith("output"):
        return "an output"
    if re.search(r"\.(then|else)\.", name):
        return "a branch's value"
    found = re.search(r"aten::(copy_|view_copy)\b", name)
    if found:
        return found[1]
    return "a call" if "call" in name else "an input"


def _disagreements(trial: Trial) -> Iterator[Failure]:
    """Where the prover says one thing and the runs another: the most serious failures of all."""
    for form, (what, report, runs) in judged(trial).items():
        if not disagree(report.verdict, runs):
            continue
        shape, lines = (
            f"{what} PROVED, and numbers differ",
            differences(trial.forms[Form.FUNCTIONAL], trial.forms[form]),
        )
        if report.verdict is Verdict.REFUTED:
            shape = f"{what} REFUTED, and no number differs"
            refuted = [f for f in report.findings if f.verdict is Verdict.REFUTED]
            lines = [f"{f.obligation.name}: {reason}" for f in refuted for reason in f.reasons]
        shown = tuple(lines[:_SHOWN])
        yield Failure(Form.PROVER.value, form.value, Fault.PROVER.name, "", shape, trial.pipeline, shown)


def judged(trial: Trial) -> dict[Form, tuple[str, Report, Runs]]:
    """What the prover says of the rewritten graph and of the file, and what the runs show beside it."""
    found = {}
    if trial.graph_report is not None:
        runs = runs_beside(trial.graph_report, trial.alike(Form.REWRITTEN))
        found[Form.REWRITTEN] = ("graph", trial.graph_report, runs)
    if trial.file_report is not None:
        alike = trial.alike(Form.RUNTIME)
        if alike and trial.file_report.verdict is Verdict.REFUTED:
            # A refuted file may be wrong from states that no call reaches.
            alike = None if trial.elsewhere is None else not trial.elsewhere
        found[Form.RUNTIME] = ("file", trial.file_report, runs_beside(trial.file_report, alike))
    return found
