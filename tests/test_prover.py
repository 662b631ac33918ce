"""The prover on graphs of a few nodes: each hazard kind refuted where it is wrong, and its right neighbour proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import ExportedProgram

from copyproof.impl import early_placement, end_placement, reference_pass
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.rule import REFERENCE
from copyproof.verify import BadInput, Report, prove, prove_pass

from . import known_wrong
from .building import Builder, aten
from .hazard_programs import (
    PROGRAMS,
    chain_of_copies,
    chain_through_a_lowered_view,
    expanded_old_contents,
    may_be_a_view,
    old_contents_returned,
    old_read_directly,
    old_read_through_a_chain_of_views,
    old_read_through_a_lowered_view,
    old_read_through_a_schema_view,
    one_value_for_two_targets,
    pieces_of_the_old_contents,
    random_numbers,
    source_computed_late,
    source_is_its_target_transposed,
    source_written_in_place_later,
    swap,
    view_taken_before_an_in_place_write,
)

PROVED, REFUTED, UNKNOWN = Verdict.PROVED, Verdict.REFUTED, Verdict.UNKNOWN


def failed(report: Report) -> set[Obligation]:
    return {f.obligation for f in report.findings if f.verdict is not PROVED and f.obligation.safety}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_reference_pass_is_proved_in_safety_and_quality(program: Callable[[], ExportedProgram]) -> None:
    report = prove_pass(program(), reference_pass)
    assert report.strict_verdict is PROVED, report


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_end_placement_done_right_is_proved_in_safety(program: Callable[[], ExportedProgram]) -> None:
    report = prove_pass(program(), end_placement())
    assert report.verdict is PROVED, report


DROPPED = {
    "source-writes": source_written_in_place_later,
    "direct-reads": old_read_directly,
    "view-reads": old_read_through_a_schema_view,
    "lowered-view-reads": old_read_through_a_lowered_view,
    "copy-reads": chain_of_copies,
    "escapes": old_contents_returned,
    "cycles": swap,
    "self-overlap": source_is_its_target_transposed,
}


@pytest.mark.parametrize("constraint", DROPPED)
def test_rule_without_one_constraint_is_refuted_and_seen(constraint: str) -> None:
    report = prove_pass(DROPPED[constraint](), early_placement(REFERENCE.without(constraint)))
    assert report.verdict is REFUTED, report
    assert any("but is" in line or "cannot run" in line for line in report.witness), report.witness


def test_rule_without_source_definition_makes_a_graph_that_uses_a_value_before_it_is_there() -> None:
    with pytest.raises(BadInput, match="raised RuntimeError"):
        prove_pass(source_computed_late(), early_placement(REFERENCE.without("source-definition")))


WRONG = [
    (
        known_wrong.after_last_schema_reader,
        old_read_through_a_lowered_view,
        {Obligation.ORDER, Obligation.OUTPUT},
    ),
    (
        known_wrong.after_last_schema_reader,
        old_read_through_a_chain_of_views,
        {Obligation.ORDER, Obligation.OUTPUT},
    ),
    (
        known_wrong.after_last_schema_reader,
        chain_through_a_lowered_view,
        {Obligation.ORDER, Obligation.STATE},
    ),
    (known_wrong.after_last_schema_reader, old_contents_returned, {Obligation.ORDER, Obligation.OUTPUT}),
    (known_wrong.one_step_early, old_read_directly, {Obligation.ORDER, Obligation.OUTPUT}),
    (known_wrong.one_step_early, pieces_of_the_old_contents, {Obligation.ORDER, Obligation.OUTPUT}),
    (known_wrong.one_step_early, expanded_old_contents, {Obligation.ORDER, Obligation.OUTPUT}),
    (known_wrong.first_write_lost, source_computed_late, {Obligation.STATE}),
    (known_wrong.last_write_doubled, source_computed_late, {Obligation.STATE}),
    (
        known_wrong.copies_into_the_next_target,
        one_value_for_two_targets,
        {Obligation.ORDER, Obligation.OUTPUT},
    ),
    (known_wrong.copies_into_the_next_target, chain_of_copies, {Obligation.STATE}),
    (known_wrong.user_outputs_reversed, old_contents_returned, {Obligation.OUTPUT}),
    (known_wrong.spec_names_rotated, chain_of_copies, {Obligation.SIGNATURE}),
    (known_wrong.clones_removed, swap, {Obligation.STATE}),
    (known_wrong.clones_removed, old_contents_returned, {Obligation.ORDER, Obligation.OUTPUT}),
    (known_wrong.clones_removed, view_taken_before_an_in_place_write, {Obligation.OUTPUT}),
    (known_wrong.writes_a_bystander, source_computed_late, {Obligation.FRAME}),
]


@pytest.mark.parametrize(("wrong", "program", "expected"), WRONG, ids=lambda x: getattr(x, "__name__", ""))
def test_known_wrong_pass_fails_just_the_obligations_that_it_breaks(
    wrong: Callable[[ExportedProgram], object],
    program: Callable[[], ExportedProgram],
    expected: set[Obligation],
) -> None:
    report = prove_pass(program(), wrong)
    assert expected <= failed(report), report
    assert report.verdict is (REFUTED if expected else PROVED), report


def test_reordered_random_numbers_break_effects() -> None:
    def reordered(program: ExportedProgram) -> object:
        result = reference_pass(program)
        first, second = (n for n in program.graph.nodes if n.target is aten.rand_like.default)
        first.prepend(second)
        program.graph_module.recompile()
        return result

    report = prove_pass(random_numbers(), reordered)
    assert report.verdict is REFUTED, report


def test_dropped_random_number_breaks_effects_even_where_nothing_uses_it() -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    build(aten.rand_like.default, x)
    program = build.returns(x, b=build(aten.add.Tensor, b, x))

    def drops(program: ExportedProgram) -> object:
        result = reference_pass(program)
        (noise,) = (n for n in program.graph.nodes if n.target is aten.rand_like.default)
        program.graph.erase_node(noise)
        return result

    assert failed(prove_pass(program, drops)) == {Obligation.EFFECTS}


def test_disjoint_slices_of_a_buffer_are_allowed_and_overlapping_ones_are_not() -> None:
    def program(start: int) -> ExportedProgram:
        build = Builder()
        b, x = build.buffer("b", 4), build.input("x", 2)
        late = build(aten.slice.Tensor, b, 0, start, start + 2)
        new = build(aten.cat.default, [build(aten.slice.Tensor, b, 0, 0, 2), x])
        return build.returns(build(aten.mul.Tensor, late, 2.0), b=new)

    def writes_only_the_upper_half(program: ExportedProgram) -> object:
        graph = program.graph
        cat = next(n for n in graph.nodes if n.target is aten.cat.default)
        b, x = (n for n in graph.nodes if n.op == "placeholder")
        with graph.inserting_after(cat):
            half = graph.call_function(aten.slice.Tensor, (b, 0, 2, 4))
        with graph.inserting_after(half):
            graph.call_function(aten.copy_.default, (half, x))
        program.graph_module.recompile()
        return program

    lower = prove_pass(program(0), writes_only_the_upper_half)
    assert lower[Obligation.ORDER].verdict is PROVED
    assert lower[Obligation.OUTPUT].verdict is PROVED
    middle = prove_pass(program(1), writes_only_the_upper_half)
    assert middle[Obligation.ORDER].verdict is REFUTED
    assert middle[Obligation.OUTPUT].verdict is REFUTED


def test_refutation_names_the_conflict_triple_marks_it_and_says_what_is_right() -> None:
    report = prove_pass(old_read_through_a_lowered_view(), known_wrong.after_last_schema_reader)
    (conflict,) = report[Obligation.ORDER].conflicts
    assert (conflict.target, conflict.write, conflict.read) == ("b", "copy__default", "mul_tensor")
    assert conflict.last_write == "placeholder b"
    assert sum("<--" in line for line in conflict.excerpt) == 3
    assert "after mul_tensor" in conflict.right


def test_lost_write_says_which_copy_is_missing() -> None:
    report = prove_pass(source_computed_late(), known_wrong.first_write_lost)
    assert "lost write" in report[Obligation.STATE].reasons[0]
    assert "copy_(b, neg_default)" in report[Obligation.STATE].reasons[0]


def test_output_in_the_wrong_place_says_which_value_stands_there() -> None:
    report = prove_pass(old_contents_returned(), known_wrong.user_outputs_reversed)
    assert "wrong place" in report[Obligation.OUTPUT].reasons[0]


def test_write_to_a_constant_names_the_writer() -> None:
    report = prove_pass(source_computed_late(), known_wrong.writes_a_bystander)
    assert "zero__default writes user input 'x'" in report[Obligation.FRAME].reasons[0]


def test_read_that_may_alias_what_was_overwritten_is_unknown_and_not_proved() -> None:
    report = prove_pass(may_be_a_view(), known_wrong.after_last_schema_reader)
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    perhaps = build(aten.reshape.default, b, [2, 2])
    program = build.returns(build(aten.mul.Tensor, perhaps, 2.0), b=build(aten.add.Tensor, b, x))

    def early(program: ExportedProgram) -> object:
        result = reference_pass(program)
        (copy,) = (n for n in program.graph.nodes if n.target is aten.copy_.default)
        next(n for n in program.graph.nodes if n.target is aten.mul.Tensor).prepend(copy)
        add = next(n for n in program.graph.nodes if n.target is aten.add.Tensor)
        copy.prepend(add)
        program.graph_module.recompile()
        return result

    assert report.verdict is PROVED
    assert prove_pass(program, early).verdict is not PROVED


def test_original_that_writes_an_unmutated_input_is_bad_input() -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    program = build.returns(build(aten.add_.Tensor, b, x))
    with pytest.raises(BadInput, match="not functional: add__tensor writes into buffer 'b'"):
        prove_pass(program, reference_pass)


def test_rewritten_graph_with_other_placeholders_is_bad_input() -> None:
    with pytest.raises(BadInput, match="other placeholders"):
        prove(swap(), chain_of_copies())


def test_pass_that_raises_or_returns_nothing_is_bad_input() -> None:
    def raises(program: ExportedProgram) -> object:
        raise KeyError("b")

    with pytest.raises(BadInput, match="'raises' raised KeyError"):
        prove_pass(swap(), raises)
    with pytest.raises(BadInput, match="returned NoneType"):
        prove_pass(swap(), lambda program: None)


def test_rewritten_graph_that_uses_a_value_before_it_is_there_is_bad_input() -> None:
    def early(program: ExportedProgram) -> object:
        result = reference_pass(program)
        copy, neg = (
            next(n for n in program.graph.nodes if n.target is t) for t in (aten.copy_.default, aten.neg.default)
        )
        neg.prepend(copy)
        return result

    with pytest.raises(BadInput, match="copy__default uses neg_default before it is defined"):
        prove_pass(source_computed_late(), early)


def test_mutated_input_that_is_named_as_a_python_builtin_keeps_its_name() -> None:
    build = Builder()
    x = build.input("input", 4)
    program = build.returns(build(aten.mul.Tensor, x, 2.0), input=build(aten.add.Tensor, x, 1.0))
    assert prove_pass(program, reference_pass).strict_verdict is PROVED


def test_program_without_targets_is_proved_and_says_that_it_is_vacuous() -> None:
    build = Builder()
    x = build.input("x", 4)
    report = prove_pass(build.returns(build(aten.add.Tensor, x, 1.0)), reference_pass)
    assert report.verdict is PROVED
    assert report[Obligation.STATE].vacuous == "the program has no target"


def test_no_time_for_the_solver_gives_unknown() -> None:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    value = b
    for _ in range(400):
        value = build(aten.add.Tensor, value, x)
    report = prove_pass(build.returns(value, b=value), reference_pass, timeout=0.0005)
    assert report.verdict in (UNKNOWN, PROVED)
    assert all(f.verdict in (UNKNOWN, PROVED) for f in report.findings)


def test_passes_own_copy_is_taken_first() -> None:
    program = swap()
    before = str(program.graph)
    prove_pass(program, reference_pass)
    assert str(program.graph) == before


def test_other_initial_contents_break_frame() -> None:
    program = swap()
    other = swap()
    other.state_dict["p"].fill_(3.0)
    _, signature = reference_pass(other)
    other._graph_signature = signature
    assert failed(prove(program, other)) == {Obligation.FRAME}


def test_buffers_that_share_memory_are_unknown() -> None:
    program = swap()
    program.state_dict["q"] = program.state_dict["p"]
    report = prove_pass(program, reference_pass)
    assert report.verdict is UNKNOWN
    assert "share memory" in report[Obligation.STATE].reasons[0]


def test_queries_are_kept_as_smt2_files_that_z3_reads_back(tmp_path: object) -> None:
    import pathlib

    import z3

    folder = pathlib.Path(str(tmp_path))
    prove_pass(swap(), reference_pass, keep_queries=folder)
    names = {path.stem for path in folder.iterdir()}
    assert names >= {"STATE", "OUTPUT", "ORDER", "FRAME", "SIGNATURE"}
    for path in folder.iterdir():
        solver = z3.Solver()
        solver.from_file(str(path))
        assert solver.check() == z3.unsat, path
    assert torch is not None


@pytest.mark.parametrize("source", [torch.float32, torch.int32])
def test_a_lost_write_of_integers_is_seen(source: torch.dtype) -> None:
    """Where random numbers below one, or integers that stay as they are, would hide it."""
    build = Builder()
    build.buffer("count", 1, dtype=torch.int32)
    program = build.returns(count=build.buffer("b", 1, dtype=source))
    result = prove(program, (program.graph_module, program.graph_signature))
    assert result[Obligation.STATE].verdict is REFUTED, result
