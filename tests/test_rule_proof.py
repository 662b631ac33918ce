"""The rule's proof: what is proved is so for a reason, is not about nothing, and fails for every weakened rule."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from copyproof.spec.errors import BadInput
from copyproof.spec.lemmas.exclusion import NO_CONFLICT, first_lemma
from copyproof.spec.lemmas.formulas import Query, facts
from copyproof.spec.lemmas.placement import third_lemma
from copyproof.spec.lemmas.refinement import STEPS, second_lemma
from copyproof.spec.obligations import Verdict
from copyproof.spec.rule import GROUPS, REFERENCE, Relation, Remedy
from copyproof.verify.deciders import Decision, Model, by_cvc5, by_z3, finite_model, fragment
from copyproof.verify.rule_proof import QueryProof, RuleProof, StepKind, counter_model, prove_rule, with_plenty

from .proofs import SECONDS, proof_of

LEMMAS = {"L1": first_lemma(REFERENCE), "L2": second_lemma(), "L3": third_lemma(REFERENCE)}
QUERIES = [query for queries in LEMMAS.values() for query in queries]
counter_model_of = cache(counter_model)
NAMES = [constraint.name for constraint in REFERENCE.constraints]


def query_of(lemma: str, name: str) -> Query:
    (query,) = (query for query in LEMMAS[lemma] if query.name == name)
    return query


def has_a_model(text: str) -> bool:
    """Whether a solver finds a model; where one is slow the other is quick."""
    return by_z3(text, 5).status == "sat" or by_cvc5(text, SECONDS).status == "sat"


@pytest.fixture(scope="module")
def proof() -> RuleProof:
    return proof_of(REFERENCE)


@pytest.mark.parametrize("lemma", LEMMAS)
def test_both_solvers_prove_every_query_of_each_lemma_about_the_reference_rule(proof: RuleProof, lemma: str) -> None:
    found = [p for p in proof.queries if p.query.lemma == lemma]
    assert [p.query.name for p in found] == [query.name for query in LEMMAS[lemma]]
    for p in found:
        assert [(d.solver, d.status) for d in p.decisions] == [("z3", "unsat"), ("cvc5", "unsat")], p.query.name
    assert proof.lemma(lemma) is Verdict.PROVED


def test_reference_rule_is_proved_of_premises_that_agree_and_of_programs_with_everything(proof: RuleProof) -> None:
    assert proof.verdict is Verdict.PROVED
    assert {p.premises.status for p in proof.queries} == {"sat"}
    assert proof.plenty.status == "sat"
    assert proof.as_lines()[0] == "PROVED  the reference rule, for graphs of any size"
    assert len(proof.as_lines()) == 1 + len(proof.queries)


def test_every_query_is_in_the_decidable_fragment(proof: RuleProof) -> None:
    assert {p.undecidable for p in proof.queries} == {None}


@pytest.mark.parametrize(
    ("declared", "formula", "reason"),
    [
        ("(declare-fun f (A) A)", "(forall ((x A)) (= (f x) x))", "without end"),
        ("(declare-fun r (A A) Bool)", "(forall ((x A)) (exists ((y A)) (r x y)))", "without end"),
        ("(declare-fun r (A A) Bool)", "(not (exists ((x A)) (forall ((y A)) (r x y))))", "without end"),
        ("(declare-fun r (A A) Bool)", "(= (exists ((x A)) (r x x)) (forall ((y A)) (r y y)))", None),
        ("(declare-fun r (A A) Bool)", "(forall ((x A)) (=> (forall ((y A)) (r x y)) (r x x)))", "without end"),
        ("(declare-fun r (A A) Bool)", "(forall ((x A)) (= (exists ((y A)) (r x y)) (r x x)))", "without end"),
        ("(declare-fun r (A A) Bool)", "(forall ((x A)) (=> (exists ((y A)) (r x y)) (r x x)))", None),
        ("(declare-fun f (A) B) (declare-fun g (B) A)", "(forall ((x A)) (= (g (f x)) x))", "without end"),
        ("(declare-fun f (A) B)", "(forall ((y B)) (exists ((x A)) (= (f x) y)))", "without end"),
        ("(declare-fun f (A) Int)", "(forall ((x A)) (> (f x) 0))", "interpreted"),
    ],
)
def test_fragment_says_why_a_text_is_outside_of_it(declared: str, formula: str, reason: str | None) -> None:
    found = fragment(f"(declare-sort A 0) (declare-sort B 0) {declared} (assert {formula})")
    assert found is None if reason is None else found is not None and reason in found


@pytest.mark.parametrize("kind", STEPS)
def test_induction_step_is_about_programs_with_everything(kind: str) -> None:
    query = with_plenty(query_of("L2", kind), REFERENCE)
    assert by_cvc5(query.premises_text, SECONDS).status == "sat"


NEEDED_BY = {
    "no-stale-read": "write-back",
    "no-own-read": "write-back",
    "no-undefined-source": "clone-of-source",
    "no-unfinished-source": "clone-of-source",
    "no-late-input": "placeholder",
    "no-late-write": "in-place",
    "no-unfinished-output": "clone-of-output",
}


@pytest.mark.parametrize("conflict", [fact.name for fact in NO_CONFLICT])
def test_refinement_needs_the_absence_of_each_kind_of_conflict(conflict: str) -> None:
    assert has_a_model(query_of("L2", NEEDED_BY[conflict]).without(conflict).text)


def test_what_refinement_presumes_is_what_the_rule_is_proved_to_give() -> None:
    given = [query.goal for query in LEMMAS["L1"]]
    assert all(set(given) <= set(query.premises) for query in LEMMAS["L2"])


def test_what_the_rule_presumes_is_what_a_placement_is_proved_to_meet() -> None:
    met = {query.goal.name for query in LEMMAS["L3"]}
    demanded = {fact.name for fact in LEMMAS["L1"][0].premises} - {fact.name for fact in LEMMAS["L3"][0].premises}
    assert {f"finish-{name}" for name in demanded} <= met


@pytest.mark.parametrize("action", ["clone-a-source", "clone-an-output", "write-back"])
def test_placement_needs_that_an_action_is_taken_when_it_may_be(action: str) -> None:
    assert has_a_model(query_of("L3", action).without("action").text)


@pytest.mark.parametrize("name", [*NAMES, *GROUPS])
def test_without_a_constraint_there_is_a_graph_with_a_conflict_of_just_its_relation(name: str) -> None:
    rule = REFERENCE.without(name)
    found = counter_model_of(rule, SECONDS)
    assert found is not None
    dropped = {c.relation for c in REFERENCE.constraints} - {c.relation for c in rule.constraints}
    assert found.conflict.relation in dropped
    assert len(found.targets) == (2 if name in ("copy-reads", "cycles") else 1)
    assert sum(step.kind is StepKind.WRITE_BACK for step in found.steps) == len(found.targets)
    assert {step.name for step in found.steps} >= {found.conflict.write_back}
    assert any("R " in line or "W1" in line for line in found.as_lines())


@pytest.mark.parametrize("name", [*NAMES, *GROUPS])
def test_both_solvers_see_that_a_weakened_rule_allows_a_conflict(name: str) -> None:
    said = []
    for query in first_lemma(REFERENCE.without(name)):
        z3, cvc5 = by_z3(query.text, SECONDS).status, by_cvc5(query.text, SECONDS).status
        assert z3 == cvc5 != "unknown", query.name
        said.append(z3)
    assert "sat" in said


@pytest.mark.parametrize("name", NAMES)
def test_each_constraint_is_in_the_text_of_the_queries(name: str) -> None:
    rule = REFERENCE.without(name)
    assert name in {fact.name for fact in LEMMAS["L1"][0].premises}
    assert all(weak.text != full.text for weak, full in zip(first_lemma(rule), LEMMAS["L1"], strict=True))
    assert {query.text for query in third_lemma(rule)} != {query.text for query in LEMMAS["L3"]}


def test_full_rule_has_no_counter_model() -> None:
    assert counter_model(REFERENCE, SECONDS) is None


def test_smallest_graph_that_a_pass_that_trusts_schemas_gets_wrong() -> None:
    found = counter_model_of(REFERENCE.without("lowered-view-reads"), SECONDS)
    assert found is not None
    text = "\n".join(found.as_lines())
    assert "v     = view_copy(b)" in text and "# W2  the write-back" in text, text
    assert found.conflict.relation is Relation.LOWERED_VIEW_READ
    order = [step.kind for step in found.steps]
    assert order.index(StepKind.LOWERED_VIEW) < order.index(StepKind.WRITE_BACK) < order.index(StepKind.READ)


FALSE = {
    "L1": ("no-stale-read", "(forall (o t) (=> (copies_from o t) (before (write_back o) (write_back t))))"),
    "L2": ("OUTPUT", "(forall (v c) (=> (and (reads output v) (covers v c)) (= (memory c) (final v c))))"),
    "L3": ("finish-copy-reads", "(forall (o t) (=> (copies_from o t) (before (write_back o) (write_back t))))"),
}


@pytest.mark.parametrize("lemma", FALSE)
def test_false_lemma_is_refuted(lemma: str) -> None:
    name, formula = FALSE[lemma]
    (goal,) = facts(f"false: what is not so, for a clone is made\n  {formula}")
    query = replace(query_of(lemma, name), goal=goal)
    assert by_z3(query.text, SECONDS).status == "sat"
    assert by_cvc5(query.text, SECONDS).status == "sat"


@pytest.mark.parametrize(
    ("z3", "cvc5", "premises", "verdict"),
    [
        ("unsat", "unsat", "sat", Verdict.PROVED),
        ("unsat", "unsat", "unsat", Verdict.UNKNOWN),
        ("unsat", "unsat", "unknown", Verdict.UNKNOWN),
        ("unsat", "unknown", "sat", Verdict.UNKNOWN),
        ("unsat", "sat", "sat", Verdict.UNKNOWN),
        ("sat", "unknown", "sat", Verdict.REFUTED),
        ("sat", "sat", "sat", Verdict.REFUTED),
    ],
)
def test_query_is_proved_only_if_both_solvers_say_so_of_premises_that_agree(
    z3: Any, cvc5: Any, premises: Any, verdict: Verdict
) -> None:
    decisions = (Decision("z3", z3, 0.0), Decision("cvc5", cvc5, 0.0))
    assert QueryProof(QUERIES[0], decisions, Decision("z3", premises, 0.0), None).verdict is verdict


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.lemma}-{query.name}")
def test_text_says_in_prose_what_it_asserts(query: Query) -> None:
    for fact in query.premises:
        assert f"; {fact.name}: {fact.reading}\n(assert {fact.formula})" in query.text
    assert f"; to prove: {query.goal.reading}\n(assert (not {query.goal.formula}))" in query.text


def test_model_of_a_given_size_is_plain_data() -> None:
    text = "(declare-sort A 0)\n(declare-fun f (A) A)\n(assert (forall ((x A)) (exists ((y A)) (not (= (f x) x y)))))"
    moves = f"{text}\n(assert (not (exists ((x A)) (= (f x) x))))"
    assert finite_model(moves, {"A": 1}, SECONDS) == "unsat"
    found = finite_model(moves, {"A": 2}, SECONDS)
    assert isinstance(found, Model)
    assert found("f", "A!0") == "A!1" and found("f", "A!1") == "A!0"


def test_without_cvc5_one_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(BadInput, match=r"pip install copyproof\[prove\]"):
        by_cvc5("(check-sat)", 1)


def test_group_stands_for_its_members_and_is_listed() -> None:
    rule = REFERENCE.without("alias-reads")
    assert not rule.demands(Relation.VIEW_READ) and not rule.demands(Relation.LOWERED_VIEW_READ)
    assert rule.constraints == REFERENCE.without("view-reads", "lowered-view-reads").constraints
    with pytest.raises(KeyError, match="alias-reads"):
        REFERENCE.without("alias-read")
    with pytest.raises(KeyError, match="no constraint 'alias-reads'"):
        REFERENCE.without("view-reads").without("alias-reads")


@pytest.mark.parametrize("name", ["no-clones", "two\n(assert false)", "", "Über"])
def test_constraint_with_a_name_that_could_be_taken_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="constraint name"):
        replace(REFERENCE.constraints[0], name=name)


def test_constraint_with_a_remedy_that_cannot_help_is_refused() -> None:
    escapes = next(c for c in REFERENCE.constraints if c.relation is Relation.ESCAPE)
    with pytest.raises(ValueError, match="is met by"):
        replace(escapes, remedy=Remedy.WAIT)


def test_two_constraints_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        replace(REFERENCE, constraints=(*REFERENCE.constraints, REFERENCE.constraints[0]))


def test_rule_without_any_constraint_is_refuted() -> None:
    assert prove_rule(replace(REFERENCE, constraints=()), 5).verdict is Verdict.REFUTED
