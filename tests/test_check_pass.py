"""`check-pass`, `enumerate` and `rule`: tiers, verdicts, exit codes, and one sentence for bad input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from copyproof.command import check as check_command
from copyproof.command import tiers
from copyproof.command.tiers import Checked, Examined, Tier, examined, identity, rule
from copyproof.impl import early_placement, reference_pass
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.rule import REFERENCE
from copyproof.verify.corpus import find
from copyproof.verify.exhaustive.bounds import Bounds
from copyproof.verify.exhaustive.recipe import Kind
from copyproof.verify.exhaustive.survey import survey

from .command_line import run, sentence
from .known_wrong import right_after_the_source

WRONG = [
    "after_last_schema_reader",
    "right_after_the_source",
    "names_the_copy",
    "one_step_early",
    "first_write_lost",
    "last_write_doubled",
    "copies_into_the_next_target",
    "user_outputs_reversed",
    "spec_names_rotated",
    "clones_removed",
    "writes_a_bystander",
]
FEW = Bounds(2, 1, 2, (Kind.PURE,))


@pytest.mark.parametrize("name", WRONG)
def test_every_wrong_pass_is_refuted_on_some_small_program(name: str) -> None:
    found = survey(f"tests.known_wrong:{name}", FEW)
    assert found.verdict is Verdict.REFUTED
    assert all(r.verdict is not Verdict.PROVED for r in found.found)


def test_identity_holds_of_the_reference_pass() -> None:
    found = identity(reference_pass)
    assert (found.verdict, found.reasons) == (Verdict.PROVED, {})


def test_pass_that_does_not_do_the_same_twice_is_unknown() -> None:
    calls: list[Any] = []

    def fickle(program: Any) -> Any:
        calls.append(program)
        return early_placement(outputs=("placeholder", "copy_")[len(calls) % 2])(program)  # type: ignore[arg-type]

    assert identity(fickle).verdict is Verdict.UNKNOWN


def test_pass_that_changes_a_program_without_targets_is_told_so() -> None:
    def busy(program: Any) -> Any:
        graph_module, signature = reference_pass(program)
        node = graph_module.graph.output_node().prev
        with graph_module.graph.inserting_after(node):
            graph_module.graph.call_function(torch.ops.aten.clone.default, (node,)).meta["val"] = node.meta["val"]
        return graph_module, signature

    assert "no target (a note)" in identity(busy).reasons


def test_pass_that_ends_the_process_is_refuted_and_not_taken_for_a_proof(few_examples: None, tmp_path: Path) -> None:
    junit = tmp_path / "report.xml"
    result = check("tests.hostile_passes:ends_the_process", "--out", tmp_path / "out", "--junit", junit)
    assert result.exit_code == 1
    assert "raised SystemExit" in result.output


def test_rule_tier_of_a_pass_that_departs_from_its_rule_is_unknown(tmp_path: Path) -> None:
    proved = Tier("rule", "?", Verdict.PROVED)
    bounds = Bounds(1, 1, 1, (Kind.PURE,))
    seen = tiers._exhaustive("tests.known_wrong:later_than_its_rule", bounds, 0, tmp_path, 60.0, None)
    assert seen.verdict is Verdict.PROVED
    tiers._require_followed([proved, seen])
    assert proved.verdict is Verdict.UNKNOWN
    assert "does not follow it" in proved.reasons["not followed"]


def test_rule_tier_does_not_apply_to_a_pass_that_offers_none() -> None:
    assert rule(lambda program: program).verdict is None


def test_identity_tier_refutes_a_pass_that_makes_no_program_of_one() -> None:
    found = identity(right_after_the_source)
    assert found.verdict is Verdict.REFUTED
    assert "before it is defined" in found.reasons["two targets"]


@pytest.mark.slow
def test_rule_tier_refutes_a_weakened_rule_with_a_graph() -> None:
    found = rule(early_placement(REFERENCE.without("direct-reads")))
    assert found.verdict is Verdict.REFUTED
    assert "W2  the write-back" in "".join(found.reasons.values())


def test_case_is_proved_as_graph_as_file_and_runs() -> None:
    found = examined("copyproof.impl:reference_pass", "swap_pair")
    assert [part and part[0] for part in (found.graph, found.file, found.run)] == [Verdict.PROVED] * 3


def test_wrong_pass_is_refuted_as_graph_as_file_and_in_the_runtime() -> None:
    found = examined("shipped", "swap_pair")
    assert found.graph is not None and found.file is not None and found.run is not None
    assert found.graph[0] is found.file[0] is found.run[0] is Verdict.REFUTED
    assert "the write-back pass" in found.file[1]
    assert "expected" in found.run[1]


def test_tier_with_programs_that_were_not_looked_at_is_unknown() -> None:
    found = tiers._tier("cases", "?", ["a", "b"], {"a": Examined("a", (Verdict.PROVED, ""))}, lambda e: e.graph, 0.0)
    assert found.verdict is Verdict.UNKNOWN
    assert "b" in found.reasons


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([Verdict.PROVED, None], Verdict.PROVED),
        ([Verdict.PROVED, Verdict.UNKNOWN], Verdict.UNKNOWN),
        ([Verdict.UNKNOWN, Verdict.REFUTED, None], Verdict.REFUTED),
    ],
)
def test_verdict_is_the_worst_of_the_tiers_that_apply(verdicts: list[Verdict | None], expected: Verdict) -> None:
    assert Checked("p", tuple(Tier("t", "?", v) for v in verdicts)).verdict is expected


@pytest.fixture
def few_examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves two examples of the corpus."""
    monkeypatch.setattr(tiers, "CASES", (find("swap_pair"),))
    monkeypatch.setattr(tiers, "MODELS", (find("delay_line"),))
    yield


def check(*arguments: Any) -> Any:
    """`check-pass` on few programs."""
    return run("check-pass", "--targets", 2, "--steps", 0, "--workers", 1, *arguments)


def test_end_placement_done_right_is_proved_by_every_tier(few_examples: None, tmp_path: Path) -> None:
    junit = tmp_path / "report.xml"
    result = check("copyproof.impl:end_pass", "--out", tmp_path / "out", "--json", "--junit", junit)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["verdict"] == "PROVED"
    assert {t["name"]: t["verdict"] for t in found["tiers"]} == {
        "identity": "PROVED",
        "rule": "not run",
        "exhaustive": "PROVED",
        "corpus": "PROVED",
        "cases": "PROVED",
        "files": "PROVED",
        "runs": "PROVED",
    }
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("7", "0", "1")


@pytest.mark.slow
def test_shipped_pass_is_refuted_by_every_tier_that_applies(few_examples: None, tmp_path: Path) -> None:
    junit = tmp_path / "report.xml"
    result = check("shipped", "--outputs", 0, "--out", tmp_path / "out", "--junit", junit)
    assert result.exit_code == 1, result.output
    for tier in ("exhaustive", "corpus", "cases", "files", "runs"):
        assert f"REFUTED {tier}" in result.stdout
    (suite,) = ElementTree.parse(junit).getroot()
    assert int(suite.get("failures") or 0) >= 5
    script = tmp_path / "out" / "state_lost_write.py"
    assert "insert_write_back_for_buffers_pass" in script.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [("copyproof.impl:reference_pass", 0), ("copyproof.impl:end_pass", 0), ("shipped", 1)]
    + [(f"tests.known_wrong:{name}", 1) for name in WRONG],
)
def test_check_pass_gives_the_right_verdict_on_the_whole_corpus(name: str, expected: int, tmp_path: Path) -> None:
    result = run("check-pass", name, "--steps", 1, "--out", tmp_path, "--budget", 1800)
    assert result.exit_code == expected, result.output


def test_enumerate_says_how_many_it_judged_and_exits_by_the_verdict(tmp_path: Path) -> None:
    arguments = ("--targets", 1, "--steps", 1, "--workers", 1, "--out", tmp_path)
    right = run("enumerate", *arguments)
    assert right.exit_code == 0, right.output
    assert "208 programs judged (all of them), 208 proved" in right.stdout
    wrong = run("enumerate", "--pass", "tests.known_wrong:user_outputs_reversed", *arguments, "--outputs", 2, "--json")
    assert wrong.exit_code == 1
    found = json.loads(wrong.stdout)
    assert {fault["obligation"] for fault in found["found"]} >= {Obligation.OUTPUT.name}
    assert Path(found["scripts"]["OUTPUT WRONG_PLACE"]).exists()


def test_kinds_that_the_command_line_knows_are_those_of_recipes() -> None:
    assert tuple(kind.value for kind in Kind) == check_command._KINDS


def test_enumerate_counts_without_a_pass() -> None:
    result = run("enumerate", "--targets", 1, "--steps", 1, "--count")
    assert result.stdout == "208 programs: targets 1, steps 1, outputs 1\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("enumerate", "--pass", "no_such_module:fn"), "cannot be imported"),
        (("enumerate", "--pass", "tests.known_wrong:WRONG_NAME"), "cannot be imported"),
        (("enumerate", "--pass", "tests.known_wrong:always_raises", "--workers", 1), "fails on the smallest program"),
        (("enumerate", "--shard", "5/3"), "no shard"),
        (("enumerate", "--kinds", "loop"), "no kind of step 'loop'"),
        (("check-pass", "no_such_module:fn"), "cannot be imported"),
        (("rule", "--without", "nothing-such"), "no constraint 'nothing-such'"),
    ],
)
def test_bad_input_gets_one_sentence(arguments: tuple[Any, ...], words: str, tmp_path: Path) -> None:
    out = () if arguments[0] == "rule" else ("--out", tmp_path)
    result = run(*arguments, *out)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_out_that_is_a_file_gets_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    result = run("enumerate", "--targets", 1, "--steps", 0, "--workers", 1, "--out", file)
    assert result.exit_code == 2
    assert "cannot be written" in sentence(result)


def test_rule_without_a_constraint_shows_a_graph_and_its_queries(tmp_path: Path) -> None:
    result = run("rule", "--without", "lowered-view-reads", "--no-run", "--emit-smt2", tmp_path)
    assert result.exit_code == 1
    assert "view_copy(b)" in result.stdout and "W2  the write-back" in result.stdout
    query = (tmp_path / "L1-no-stale-read.smt2").read_text()
    assert "; to prove: no step reads a target's memory after its write-back" in query
    assert "through an alias that only the lowering makes" in query
    assert "; lowered-view-reads:" not in query
