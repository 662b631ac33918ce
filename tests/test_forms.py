"""The forms that a program runs in, each against eager PyTorch, and one against the next where something is wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from executorch.exir.passes.insert_write_back_for_buffers_pass import insert_write_back_for_buffers_pass

from copyproof.fuzz.campaign import trial as trials
from copyproof.fuzz.campaign.agreement import Runs
from copyproof.fuzz.campaign.failure import Failure, Fault, Form
from copyproof.fuzz.campaign.judging import failures_of, judged
from copyproof.fuzz.campaign.trial import Trial, tried
from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import run_eager
from copyproof.fuzz.forms import run_functional, run_rewritten
from copyproof.fuzz.planned import run_planned
from copyproof.fuzz.programs.stateful import Holder, Place, Stateful, Step
from copyproof.fuzz.runtime import RuntimeFailure
from copyproof.impl import reference_pass
from copyproof.spec.obligations import Verdict
from copyproof.spec.pipeline import copy_of, copy_of_edge, standing_in
from copyproof.verify.corpus import find
from copyproof.verify.corpus.example import backend_config, calls_of, export

from .hostile_passes import raises_something_odd
from .known_wrong import after_last_schema_reader, last_write_doubled
from .lowering import edge_of, program_of

BUFFER, INPUT = Holder(Place.BUFFER), Holder(Place.INPUT)
LOST = Stateful((BUFFER, Holder(Place.BUFFER, counting=True), INPUT), (Step("copy_", (0, 1)),), (0,))
KEPT = Stateful((BUFFER, INPUT), (Step("add_", (0, 1)),), (0,))
TWO_BRANCHES = Stateful(
    (BUFFER, INPUT),
    (Step("cond", (1, 1)), Step("times", (1,), (2,)), Step("cond", (1, 3)), Step("copy_", (0, 1))),
    (2, 4),
)


def failures(trial: Trial) -> list[Failure]:
    """What is wrong with a trial."""
    return list(failures_of(trial))


@pytest.mark.parametrize("name", ["swap_pair", "view_chain_matmul", "scale_then_update", "delay_line"])
def test_every_form_of_the_reference_pass_gives_what_eager_gives(name: str) -> None:
    example = find(name)
    program, calls = program_of(example), calls_of(example)
    eager = run_eager(export(example).module(), calls)
    assert differences(eager, run_functional(program, calls), exact=False) == []
    rewritten: Any = reference_pass(copy_of(program))
    assert differences(eager, run_rewritten(program, *rewritten, calls), exact=False) == []
    with standing_in(reference_pass):
        lowered = copy_of_edge(edge_of(example)).to_executorch(backend_config(example))
    assert differences(eager, run_planned(lowered.exported_program(), calls), exact=False) == []


def test_a_module_that_the_pass_gets_right_runs_alike_in_all_forms() -> None:
    trial = tried(KEPT, reference_pass)
    assert failures(trial) == []
    assert set(trial.forms) == set(Form) - {Form.PROVER}
    assert {runs for _, _, runs in judged(trial).values()} == {Runs.ALIKE}


def test_a_lost_write_is_the_fault_of_the_pass() -> None:
    (failure,) = failures(tried(LOST, insert_write_back_for_buffers_pass))
    assert (failure.left, failure.right) == (Form.FUNCTIONAL.value, Form.REWRITTEN.value)
    assert (failure.fault, failure.obligation) == (Fault.PASS.name, "STATE")
    assert failure.shape == "a target that is never written"


def test_a_pass_that_trusts_schemas_is_at_fault_where_a_lowered_view_is_read_late() -> None:
    steps = (Step("view", (0,), ((2, 2),)), Step("copy_", (0, 1)), Step("clone", (2,)), Step("times", (4,), (2,)))
    late = Stateful((BUFFER, INPUT), steps, (5,))
    found = failures(tried(late, after_last_schema_reader))
    assert {f.fault for f in found} <= {Fault.PASS.name}
    assert failures(tried(late, reference_pass)) == []


def test_a_buffer_that_does_not_start_at_zero_is_the_fault_of_the_file() -> None:
    (failure,) = failures(
        tried(Stateful((Holder(Place.BUFFER, counting=True), INPUT), KEPT.steps, (0,)), reference_pass)
    )
    assert (failure.fault, failure.obligation) == (Fault.FILE.name, "INIT")


def test_two_branches_that_are_planned_into_the_same_bytes_are_the_fault_of_the_plan() -> None:
    found = failures(tried(TWO_BRANCHES, reference_pass))
    assert [f.fault for f in found] == [Fault.PLAN.name]
    assert found[0].right == Form.PLANNED.value


def test_two_branches_in_the_same_bytes_that_compute_the_same_in_other_shapes_are_not_refuted() -> None:
    """They hold the same numbers, in every call; the model of operators does not know it."""
    steps = (Step("plus", (0,), (1,)), Step("view", (1,), ((2, 2),)), Step("cond", (1, 1)), Step("cond", (1, 2)))
    trial = tried(Stateful((INPUT,), steps, (3, 4)), reference_pass)
    assert trial.file_report is not None and trial.file_report.verdict is Verdict.UNKNOWN, trial.file_report
    assert trial.alike(Form.RUNTIME) and failures(trial) == []


def test_what_the_plan_breaks_is_its_fault_beside_what_the_pass_broke() -> None:
    """Whether they break the same obligation of the file, as where old contents are returned, or another one."""
    branches = (Step("cond", (1, 1)), Step("times", (1,), (2,)), Step("cond", (1, 3)))
    old = Stateful((INPUT, INPUT), (*branches, Step("copied", (0,)), Step("times_", (0,), (2,))), (5, 2, 4))
    branches = (Step("cond", (2, 2)), Step("times", (2,), (2,)), Step("cond", (2, 4)))
    lost = Stateful(LOST.holders, (*branches, *LOST.steps), (0, 3, 5))
    for module, broken in ((lost, "STATE"), (old, "ORDER")):
        trial = tried(module, insert_write_back_for_buffers_pass)
        first, second = failures(trial)
        assert (first.fault, first.obligation) == (Fault.PASS.name, broken)
        assert (second.right, second.fault) == (Form.PLANNED.value, Fault.PLAN.name)
        assert trial.unplanned is not None
        assert differences(trial.forms[Form.REWRITTEN], trial.unplanned) == []


def test_a_pass_that_drops_an_output_is_judged_though_what_it_made_does_not_run() -> None:
    def one_less(program: Any) -> Any:
        graph_module, signature = reference_pass(program)
        output = graph_module.graph.output_node()
        output.args = (tuple(output.args[0][:-1]),)
        return graph_module, signature

    trial = tried(KEPT, one_less)
    assert Form.REWRITTEN not in trial.forms
    assert trial.graph_report is not None and trial.graph_report.verdict is Verdict.REFUTED
    (failure,) = failures(trial)
    assert (failure.fault, failure.left, failure.right) == ("PASS", Form.FUNCTIONAL.value, Form.REWRITTEN.value)
    assert failure.lines[0] == "output 1 (nothing) does not hold what aten_add_tensor does"


def test_a_graph_that_is_refuted_fails_by_its_pass_though_its_calls_show_no_other_numbers() -> None:
    def contents_changed(program: Any) -> Any:
        for value in program.state_dict.values():
            value.add_(1)
        return reference_pass(program)

    for write_back_pass, broken in ((last_write_doubled, "STATE"), (contents_changed, "FRAME")):
        trial = tried(KEPT, write_back_pass)
        assert trial.alike(Form.REWRITTEN)
        (failure,) = failures(trial)
        assert (failure.fault, failure.obligation, failure.right) == ("PASS", broken, Form.REWRITTEN.value)
        assert failure.lines


def test_a_user_input_that_is_written_in_place_keeps_its_memory_to_the_end() -> None:
    """Reinplacing writes it with `index_put_`; the planner gave its bytes away after the last reader."""
    holders = (Holder(Place.INPUT, (2, 2)), Holder(Place.POSITION, (1,), "int64"), Holder(Place.INPUT, (1, 2)))
    module = Stateful(holders, (Step("row_", (0, 1, 2)), Step("times_", (2,), (2,))), ())
    assert failures(tried(module, reference_pass, "reinplace")) == []
    assert failures(tried(module, insert_write_back_for_buffers_pass, "reinplace")) != []


def test_a_mutated_parameter_comes_back_as_an_output_where_the_file_is_emitted() -> None:
    """Whether the planned form runs, as with fixed sizes, or not."""
    for sizes in (False, True):
        holders = (Holder(Place.PARAMETER, (4, 2)), Holder(Place.INPUT, (4, 2), sizes=sizes), BUFFER)
        trial = tried(Stateful(holders, (Step("times_", (0,), (2,)), Step("negate", (1,))), ()), reference_pass)
        (failure,) = failures(trial)
        assert (Form.PLANNED in trial.forms) is not sizes
        assert (failure.fault, failure.obligation) == (Fault.FILE.name, "")
        assert failure.lines[0] == "call 0, output: expected 0 values, got 1"


def test_a_custom_operator_that_writes_a_buffer_runs_alike_in_all_forms() -> None:
    shape = (1, 4, 1, 2)
    holders = (Holder(Place.BUFFER, shape), Holder(Place.BUFFER, shape), Holder(Place.INPUT, (1, 1, 1, 2)))
    update, add = Step("update_cache", (0, 2), (1,)), Step("add_", (1, 0))
    trial = tried(Stateful(holders, (Step("clone", (0,)), update, add), (3, 0)), reference_pass)
    assert failures(trial) == []
    assert set(trial.forms) == set(Form) - {Form.PROVER}
    assert {(report.verdict, runs) for _, report, runs in judged(trial).values()} == {(Verdict.PROVED, Runs.ALIKE)}


def test_a_view_is_looked_at_where_the_plan_has_it() -> None:
    """The view of what reinplacing writes in place has memory of its own, wherever that was written."""
    holders = (Holder(Place.BUFFER, (2,)), Holder(Place.INPUT, (2,)), Holder(Place.POSITION, (1,), "int64"))
    steps = (Step("row_", (0, 2, 3)), Step("view", (0,), ((2,),)), Step("add", (1, 5)))
    found = failures(tried(Stateful((*holders, Holder(Place.INPUT, (1,))), steps, (6,)), reference_pass, "reinplace"))
    assert [(f.right, f.fault, f.obligation) for f in found] == [(Form.PLANNED.value, Fault.PLAN.name, "OUTPUT")]


def test_a_refuted_state_that_no_output_shows_is_seen_in_the_planned_arena() -> None:
    holders = (Holder(Place.BUFFER, (2,)), Holder(Place.INPUT, (2,)), Holder(Place.POSITION, (1,), "int64"))
    steps = (Step("row_", (1, 2, 3)), Step("view", (1,), ((2,),)), Step("add_", (0, 5)))
    module = Stateful((*holders, Holder(Place.INPUT, (1,))), steps, ())
    found = failures(tried(module, insert_write_back_for_buffers_pass, "reinplace"))
    assert [(f.right, f.fault, f.obligation) for f in found] == [(Form.PLANNED.value, Fault.PLAN.name, "STATE")]


def test_results_of_branches_that_never_run_together_may_share_bytes() -> None:
    holders = (INPUT, Holder(Place.POSITION, (1,), "int64"), Holder(Place.INPUT, (1,)))
    steps = (Step("cond", (0, 0)), Step("put_", (3, 1, 2)))
    assert failures(tried(Stateful(holders, steps, (3,)), reference_pass, "reinplace")) == []


def test_a_call_may_write_over_what_it_reads_where_each_element_stays_where_it_is() -> None:
    """Reinplacing lets the transposition back write where it reads; with one row there is nothing to move."""
    holders = (
        Holder(Place.INPUT, (1, 4, 1, 2)),
        Holder(Place.INPUT, (1, 1, 1, 2)),
        Holder(Place.POSITION, (1,), "int64"),
    )
    module = Stateful(holders, (Step("transpose", (0,)), Step("row_", (3, 2, 1))), ())
    assert failures(tried(module, insert_write_back_for_buffers_pass, "reinplace")) == []


def test_a_cast_that_decompositions_lose_is_the_fault_of_export() -> None:
    module = Stateful((Holder(Place.BUFFER, dtype="int64"), INPUT), (Step("copy_", (0, 1)),), (0,))
    found = failures(tried(module, reference_pass))
    assert Fault.EXPORT.name in [f.fault for f in found]
    assert Fault.PASS.name not in [f.fault for f in found]


def test_a_proof_that_a_run_contradicts_is_the_most_serious_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    right = tried(KEPT, reference_pass).graph_report
    monkeypatch.setattr(trials, "prove_pass", lambda *args, **kwargs: right)
    found = failures(tried(LOST, insert_write_back_for_buffers_pass))
    assert "graph PROVED, and numbers differ" in [f.shape for f in found if f.fault == Fault.PROVER.name]


def test_a_refutation_that_no_run_shows_is_a_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tried(LOST, insert_write_back_for_buffers_pass).file_report
    monkeypatch.setattr(trials, "prove_program", lambda *args, **kwargs: wrong)
    found = failures(tried(KEPT, reference_pass))
    assert [f.shape for f in found] == ["file REFUTED, and no number differs"]


def test_a_runtime_that_dies_is_a_failure_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeFailure("the runtime died with SIGABRT while running call 0")

    monkeypatch.setattr(trials, "run_program", dies)
    (failure,) = failures(tried(KEPT, reference_pass))
    assert failure.right == Form.RUNTIME.value and "SIGABRT" in failure.shape


def test_a_pass_that_raises_is_told_with_the_line_that_raised() -> None:
    (failure,) = failures(tried(KEPT, raises_something_odd))
    assert failure.fault == Fault.PASS.name and failure.raised
    assert re.fullmatch(r"raised in raises_something_odd, .*hostile_passes\.py:\d+", failure.lines[-1]), failure


def test_a_pass_that_raises_is_at_fault() -> None:
    def raises(program: Any) -> Any:
        raise RuntimeError("no")

    (failure,) = failures(tried(KEPT, raises))
    assert failure.fault == Fault.PASS.name and "does not lower" in failure.shape


def test_what_the_rewritten_graph_writes_stays_there_for_the_next_call() -> None:
    first, second, third = (call.state["b0"] for call in tried(KEPT, reference_pass).forms[Form.REWRITTEN])
    assert not torch.equal(first, second) and not torch.equal(second, third)
