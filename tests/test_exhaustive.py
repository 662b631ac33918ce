"""Every small program: that none is missing, that the quick screen says what the prover says, and what is found."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copyproof.impl import end_placement, reference_pass
from copyproof.spec.errors import BadInput
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.program import Role
from copyproof.verify import prove_pass
from copyproof.verify.evaluate import evaluate
from copyproof.verify.exhaustive.bounds import Bounds, canonical, count_of_blocks, frames, recipes, roles_within
from copyproof.verify.exhaustive.build import Builder
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe, places_of
from copyproof.verify.exhaustive.screen import Fault, Screen
from copyproof.verify.exhaustive.script import Where, in_runtime, script_of, seen
from copyproof.verify.exhaustive.survey import Survey, survey
from copyproof.verify.frontend import original_programs_of

from . import known_wrong

BUFFER, INPUT = Role.BUFFER, Role.USER_INPUT
REFERENCE = "copyproof.impl:reference_pass"
SMALLEST = Bounds(1, 1, 1)
SMALL = Bounds(2, 1, 1)
EVERY_SMALLEST = list(recipes(SMALLEST))


def in_any_order(bounds: Bounds) -> Iterator[Recipe]:
    """Every program within bounds by brute force: operands and outputs in any order, steps that do not matter too."""
    for steps in range(bounds.steps + 1):
        for roles in roles_within(bounds):
            for chosen in _any_steps(len(roles), bounds.kinds, steps):
                values = range(len(roles) + 1 + steps)
                for sources in product(values, repeat=len(roles)):
                    if len(set(zip(roles, sources, strict=True))) < len(roles):
                        continue
                    for count in range(bounds.outputs + 1):
                        for outputs in product(values, repeat=count):
                            yield Recipe(roles, chosen, sources, outputs)


def _any_steps(bystander: int, kinds: tuple[Kind, ...], count: int) -> Iterator[tuple[Act, ...]]:
    if not count:
        yield ()
        return
    for before in _any_steps(bystander, kinds, count - 1):
        values = range(bystander + 1 + len(before))
        places = places_of(bystander, before)
        for kind in kinds:
            arity = 2 if kind in (Kind.PURE_OF_TWO, Kind.WRITE) else 1
            for operands in product(values, repeat=arity):
                if kind is Kind.WRITE:
                    (root, turned), (other, also) = places[operands[0]], places[operands[1]]
                    if root == bystander or (root == other and turned != also):
                        continue
                yield (*before, Act(kind.value, operands))


@pytest.mark.parametrize("bounds", [Bounds(1, 2, 1), Bounds(2, 1, 2)], ids=lambda b: b.spelled)
def test_enumeration_loses_nothing_against_brute_force_and_has_each_program_once(bounds: Bounds) -> None:
    enumerated = list(recipes(bounds))
    assert len(enumerated) == len(set(enumerated))
    assert {canonical(recipe) for recipe in in_any_order(bounds)} == set(enumerated)


def test_symmetric_programs_get_the_same_verdict() -> None:
    """What makes it right to keep one of them: the order of operands and outputs decides nothing."""
    bounds = Bounds(1, 2, 1, (Kind.PURE_OF_TWO, Kind.LOWERED, Kind.WRITE))
    verdicts: dict[Recipe, set[Verdict]] = {}
    several = [r for r in in_any_order(bounds) if canonical(r) != r and r.live]
    for recipe in several[:: max(1, len(several) // 60)]:
        for program in (recipe, canonical(recipe)):
            report = prove_pass(Builder().program(program), known_wrong.after_last_schema_reader)
            verdicts.setdefault(canonical(recipe), set()).add(report.verdict)
    assert len(verdicts) > 20
    assert all(len(found) == 1 for found in verdicts.values())


@pytest.mark.parametrize("bounds", [SMALL, Bounds(2, 2, 0), Bounds(3, 1, 0)], ids=lambda b: b.spelled)
def test_blocks_are_counted_without_making_them(bounds: Bounds) -> None:
    assert count_of_blocks(bounds) == -(-sum(1 for _ in frames(bounds)) // 16)


@pytest.mark.parametrize("recipe", EVERY_SMALLEST[::9], ids=str)
def test_each_program_is_a_valid_export_that_runs(recipe: Recipe) -> None:
    program = Builder().program(recipe)
    program.validate()
    assert len(program.module()(*program.example_inputs[0])) == len(recipe.outputs)


@st.composite
def small_recipes(draw: st.DrawFn) -> Recipe:
    """A program of the enumeration within targets 2, steps 3, outputs 2."""
    roles = draw(st.sampled_from(roles_within(Bounds(2))))
    steps: tuple[Act, ...] = ()
    for _ in range(draw(st.integers(0, 3))):
        places = places_of(len(roles), steps)
        values = st.sampled_from(range(len(places)))
        kind, first, second = draw(st.sampled_from(list(Kind))), draw(values), draw(values)
        if kind is Kind.WRITE:
            (root, turned), (other, also) = places[first], places[second]
            if root == len(roles) or (root == other and turned != also):
                kind = Kind.PURE
        if kind is Kind.PURE_OF_TWO and first == second:
            kind = Kind.PURE
        operands = (first, second) if kind in (Kind.PURE_OF_TWO, Kind.WRITE) else (first,)
        steps = (*steps, Act(kind.value, operands))
    values = st.sampled_from(range(len(roles) + 1 + len(steps)))
    sources = [draw(values) for _ in roles]
    if len(set(zip(roles, sources, strict=True))) < len(sources):
        sources = list(range(len(roles)))
    outputs = draw(st.lists(values, max_size=2))
    return canonical(Recipe(roles, steps, tuple(sources), tuple(outputs)))


PASSES = [
    reference_pass,
    end_placement(),
    known_wrong.after_last_schema_reader,
    known_wrong.one_step_early,
    known_wrong.clones_removed,
    known_wrong.names_the_copy,
    known_wrong.user_outputs_reversed,
    known_wrong.spec_names_rotated,
]


@given(small_recipes(), st.sampled_from(PASSES))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
def test_what_the_screen_closes_the_solver_proves_and_what_it_leaves_open_the_solver_does_not(
    recipe, write_back
) -> None:
    screen = Screen()
    program = screen.builder.program(recipe)
    try:
        graph_module, signature = write_back(program)
        opened = screen.open_ways(recipe, [program], graph_module, signature)
        report = prove_pass(Builder().program(recipe), write_back)
    except Exception as error:
        assert "before it is defined" in str(error) or "cannot run" in str(error)
        return
    assert (report.verdict is Verdict.PROVED) == (not opened), (opened, str(report))
    for way in opened:
        assert report[way.obligation].verdict is not Verdict.PROVED


@given(small_recipes())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_programs_of_one_frame_share_is_what_each_of_them_is(recipe: Recipe) -> None:
    screen = Screen()
    program = screen.builder.program(recipe)
    functional, _ = original_programs_of(Builder().program(recipe), screen.profile)
    shared = screen.pair(recipe, *reference_pass(program))
    assert (shared.original.inputs, shared.original.steps) == (functional.inputs, functional.steps)
    assert [(o.value, o.kind, o.target) for o in shared.original.outputs] == [
        (o.value, o.kind, o.target) for o in functional.outputs
    ]
    assert shared.functional.outputs == evaluate(functional, "F").outputs


def test_reference_pass_is_proved_on_every_small_program_and_stands_where_its_rule_says() -> None:
    found = survey(REFERENCE, SMALL)
    assert found.verdict is Verdict.PROVED
    assert found.complete and found.closed == found.programs > 3000
    assert found.found == []


def test_pass_that_departs_from_its_rule_is_told_so_and_stays_proved() -> None:
    found = survey("tests.known_wrong:later_than_its_rule", SMALLEST)
    assert found.verdict is Verdict.PROVED
    assert {(r.obligation, r.fault) for r in found.found} == {(Obligation.RULE, Fault.RULE)}
    assert "the rule holds it only until" in found.found[0].about


def smallest(name: str, fault: tuple[Obligation, Fault], bounds: Bounds) -> Recipe:
    """The smallest program on which a survey of a pass finds a fault."""
    found: Survey = survey(name, bounds)
    assert found.verdict is Verdict.REFUTED
    (refuted,) = [r for r in found.found if (r.obligation, r.fault) == fault]
    assert refuted.verdict is Verdict.REFUTED
    assert refuted.report is not None and refuted.report.witness
    return refuted.recipe


NO_STEP = Bounds(2, 0, 1)
FOUND = {
    "the shipped pass loses a write": (
        "shipped",
        (Obligation.STATE, Fault.LOST_WRITE),
        NO_STEP,
        Recipe((INPUT,), (), (1,), ()),
    ),
    "the shipped pass mixes up the signature": (
        "shipped",
        (Obligation.SIGNATURE, Fault.SWAPPED),
        NO_STEP,
        Recipe((BUFFER, BUFFER), (), (0, 2), ()),
    ),
    "the shipped pass copies in the wrong order": (
        "shipped",
        (Obligation.ORDER, Fault.DEPENDENT_COPIES),
        NO_STEP,
        Recipe((BUFFER, INPUT), (), (2, 0), ()),
    ),
    "schemas do not tell of lowered views": (
        "tests.known_wrong:after_last_schema_reader",
        (Obligation.ORDER, Fault.READ_THROUGH_LOWERED_VIEW),
        Bounds(1, 2, 1, (Kind.PURE, Kind.LOWERED)),
        Recipe((BUFFER,), (Act("lowered-view", (0,)), Act("pure", (2,))), (1,), (3,)),
    ),
    "one step too early": (
        "tests.known_wrong:one_step_early",
        (Obligation.ORDER, Fault.READ_DIRECTLY),
        SMALLEST,
        Recipe((BUFFER,), (Act("pure", (0,)),), (1,), (2,)),
    ),
    "a missing clone of what is returned": (
        "tests.known_wrong:clones_removed",
        (Obligation.OUTPUT, Fault.ESCAPE),
        NO_STEP,
        Recipe((BUFFER,), (), (1,), (0,)),
    ),
    "a cycle": (
        "tests.known_wrong:clones_removed",
        (Obligation.ORDER, Fault.CYCLE),
        NO_STEP,
        Recipe((BUFFER, BUFFER), (), (1, 0), ()),
    ),
    "a source that overlaps its target": (
        "tests.known_wrong:clones_removed",
        (Obligation.STATE, Fault.SELF_OVERLAP),
        SMALLEST,
        Recipe((BUFFER,), (Act("turned", (0,)),), (2,), ()),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_enumeration_finds_by_itself_the_smallest_program_of(name: str) -> None:
    pass_name, fault, bounds, expected = FOUND[name]
    assert smallest(pass_name, fault, bounds) == expected


def test_smallest_is_what_brute_force_finds_smallest_too() -> None:
    """No program of fewer steps, targets or outputs shows the hazard of the lowered view."""
    bounds = Bounds(2, 1, 1, (Kind.PURE, Kind.LOWERED, Kind.CLONE))
    for recipe in in_any_order(bounds):
        report = prove_pass(Builder().program(recipe), known_wrong.after_last_schema_reader) if recipe.live else None
        if report is not None and report[Obligation.ORDER].conflicts:
            screen = Screen()
            program = screen.builder.program(recipe)
            result = known_wrong.after_last_schema_reader(program)
            faults = {way.fault for way in screen.open_ways(recipe, [program], *result)}
            assert Fault.READ_THROUGH_LOWERED_VIEW not in faults


class Stop(Exception):
    """Ends a survey in the middle."""


SOME = Bounds(2, 1, 1, (Kind.PURE, Kind.VIEW, Kind.LOWERED, Kind.WRITE))


def interrupted(after: int, folder: Path) -> None:
    """A survey of the reference pass that ends after so many blocks."""

    def progress(found: Survey) -> None:
        if found.done == after:
            raise Stop

    with pytest.raises(Stop):
        survey(REFERENCE, SOME, folder=folder, progress=progress)


def test_interrupted_survey_goes_on_where_it_stopped(tmp_path: Path) -> None:
    interrupted(3, tmp_path)
    worked = []
    found = survey(REFERENCE, SOME, folder=tmp_path, progress=lambda f: worked.append(f.done))
    assert worked == list(range(4, count_of_blocks(SOME) + 1))
    assert found.programs == sum(1 for _ in recipes(SOME))
    assert found.verdict is Verdict.PROVED


def test_shards_add_up_and_are_brought_together_by_their_files(tmp_path: Path) -> None:
    parts = [survey("shipped", SMALLEST, shard=(k, 2), folder=tmp_path) for k in (1, 2)]
    worked: list[int] = []
    whole = survey("shipped", SMALLEST, folder=tmp_path, progress=lambda f: worked.append(f.done))
    alone = survey("shipped", SMALLEST)
    assert worked == []
    assert whole.complete and whole.programs == sum(part.programs for part in parts) == alone.programs
    assert [(r.fault, r.recipe, r.count) for r in whole.found] == [(r.fault, r.recipe, r.count) for r in alone.found]


def test_several_processes_find_what_one_does() -> None:
    alone, together = survey("shipped", SMALLEST), survey("shipped", SMALLEST, workers=2)
    assert [(r.fault, r.recipe, r.count) for r in alone.found] == [(r.fault, r.recipe, r.count) for r in together.found]


def test_survey_of_a_pass_whose_source_has_changed_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "a_pass_that_changes.py"
    text = "from copyproof.impl import end_placement\nwrite_back = end_placement()\n"
    module.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "a_pass_that_changes:write_back"
    assert survey(name, SMALLEST, folder=tmp_path / "out").complete
    module.write_text(text + "# another\n")
    worked: list[int] = []
    survey(name, SMALLEST, folder=tmp_path / "out", progress=lambda f: worked.append(f.done))
    assert worked == [1, 2]
    assert list((tmp_path / "out").glob("*.old"))


def test_survey_that_runs_out_of_time_is_not_a_proof() -> None:
    found = survey(REFERENCE, SMALL, seconds=1e-6)
    assert not found.complete
    assert found.verdict is Verdict.UNKNOWN


def test_pass_that_raises_on_some_programs_is_not_proved() -> None:
    found = survey("tests.known_wrong:raises_on_views", SMALLEST)
    assert found.verdict is Verdict.REFUTED
    assert [r.fault for r in found.found] == [Fault.RAISES]
    assert "no views, please" in found.found[0].about


def run_script(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own."""
    path = folder / "repro.py"
    path.write_text(text)
    return subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=Path(__file__).parent.parent)


def test_script_of_a_lowered_view_shows_wrong_numbers_in_the_runtime_and_fails_as_a_test(tmp_path: Path) -> None:
    recipe = FOUND["schemas do not tell of lowered views"][3]
    found = seen(recipe, "tests.known_wrong:after_last_schema_reader", "a fault")
    assert found is not None and found.where is Where.RUNTIME
    assert "expected [[30.0, 33.0], [36.0, 39.0]], got [[3.0, 6.0], [9.0, 12.0]]" in found.printed
    assert "copyproof" not in found.text.replace("copyproof.impl", "")
    path = tmp_path / "repro.py"
    path.write_text(found.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    assert run.returncode == 1 and "1 failed" in run.stdout


def test_script_of_a_lost_write_shows_it_in_the_runtime_by_what_the_buffer_held() -> None:
    found = seen(Recipe((BUFFER, BUFFER), (), (1, 2), ()), "shipped", "a fault")
    assert found is not None and found.where is Where.PROBED


def test_script_of_a_view_by_schema_runs_over_memory() -> None:
    recipe = Recipe((BUFFER,), (Act("turned", (0,)), Act("pure", (2,))), (1,), (3,))
    assert not in_runtime(recipe)
    found = seen(recipe, "tests.known_wrong:right_after_the_source", "a fault")
    assert found is not None and found.where is Where.MEMORY


@pytest.mark.parametrize("where", list(Where), ids=lambda w: w.name)
def test_script_of_a_right_pass_finds_no_difference(where: Where, tmp_path: Path) -> None:
    steps = (Act("lowered-view", (0,)), Act("pure-of-two", (2, 3)), Act("several", (1,)))
    recipe = Recipe((BUFFER, INPUT), steps, (1, 4), (0, 3, 5))
    run = run_script(script_of(recipe, REFERENCE, "none", where), tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 calls gave the expected numbers" in run.stdout


def test_recipe_reads_back_as_it_was_written() -> None:
    for recipe in EVERY_SMALLEST:
        assert Recipe.from_json(recipe.as_json()) == recipe


def test_dead_steps_are_those_that_change_nothing_when_left_out() -> None:
    build = Builder()
    for recipe in in_any_order(Bounds(1, 1, 1)):
        kept = recipe.without_dead_steps()
        if kept == recipe:
            continue
        whole, less = (build.program(r).module() for r in (recipe, kept))
        given = build.program(recipe).example_inputs[0]
        for a, b in zip(whole(*given), less(*given), strict=True):
            assert torch.equal(a, b)


def test_order_of_targets_is_no_symmetry() -> None:
    """A pass sees which target comes first: both orders of every pair of new values are there."""
    pairs = {r.sources for r in recipes(NO_STEP) if r.targets == (BUFFER, BUFFER) and not r.outputs}
    assert pairs == set(permutations(range(3), 2))


HARMFUL = [
    "placeholders_swapped",
    "placeholder_dropped",
    "state_removed",
    "state_of_integers",
    "state_of_negative_zeros",
    "state_shared",
    "constant_smuggled_in",
    "argument_class_changed",
    "ends_the_process",
    "raises_something_odd",
]


@pytest.mark.parametrize("name", HARMFUL)
def test_pass_that_places_right_but_harms_the_program_otherwise_is_not_proved(name: str) -> None:
    try:
        found = survey(f"tests.hostile_passes:{name}", Bounds(2, 1, 0, (Kind.PURE,)))
    except BadInput as error:
        assert name.startswith("placeholder") and "other placeholders" in str(error)
        return
    assert found.verdict is not Verdict.PROVED
    assert found.closed < found.programs


def test_harm_that_one_pass_does_is_not_seen_in_programs_of_another() -> None:
    survey("tests.hostile_passes:state_of_negative_zeros", SMALLEST)
    assert survey(REFERENCE, SMALLEST).verdict is Verdict.PROVED


def test_pass_that_does_not_return_ends_with_the_time_and_is_not_proved() -> None:
    found = survey("tests.hostile_passes:never_returns", SMALLEST, workers=1, seconds=20)
    assert not found.complete
    assert found.verdict is Verdict.UNKNOWN


def test_shard_without_a_block_is_not_a_proof() -> None:
    with pytest.raises(BadInput, match="nothing to do"):
        survey(REFERENCE, Bounds(1, 0, 0), shard=(2, 2))


def test_survey_of_a_pass_whose_helper_module_has_changed_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_pass_with_a_helper.py").write_text(
        "import a_helper_of_it\ndef write_back(program):\n    return a_helper_of_it.real(program)\n"
    )
    helper = tmp_path / "a_helper_of_it.py"
    helper.write_text("from copyproof.impl import end_pass as real\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    name, out = "a_pass_with_a_helper:write_back", tmp_path / "out"
    assert survey(name, SMALLEST, folder=out).complete
    helper.write_text("from copyproof.impl import reference_pass as real\n")
    assert survey(name, SMALLEST, folder=out).kept == 0
    assert survey(name, SMALLEST, folder=out).kept == 2


@pytest.mark.parametrize("row", ["{}", "nonsense", '{"programs": 1, "closed": 1, "seconds": 0, "faults": [{}]}'])
def test_row_of_a_ledger_that_cannot_be_read_is_of_a_block_that_is_not_done(row: str, tmp_path: Path) -> None:
    survey(REFERENCE, SMALLEST, folder=tmp_path)
    with sqlite3.connect(tmp_path / "blocks-1-of-1.sqlite") as connection:
        connection.execute("update block set tally = ? where number = 1", (row,))
        connection.execute(
            "insert into block values (-1, ?)", ('{"programs": 9, "closed": 9, "seconds": 0, "faults": []}',)
        )
    found = survey(REFERENCE, SMALLEST, folder=tmp_path)
    assert (found.kept, found.programs, found.complete) == (1, len(EVERY_SMALLEST), True)
