"""The proof of the placement rule for graphs of any size, and small graphs that a weakened rule gets wrong.

`prove_rule` has both solvers decide the queries of `copyproof.spec.lemmas`; `counter_model` has Z3 look for the
smallest graph with a conflict, and says it in the words of the project.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

from copyproof.spec.lemmas.examples import LIKENESS, like_a_graph, plenty
from copyproof.spec.lemmas.exclusion import RELATIONS, first_lemma, relation_name
from copyproof.spec.lemmas.formulas import Fact, Query
from copyproof.spec.lemmas.placement import third_lemma
from copyproof.spec.lemmas.refinement import second_lemma
from copyproof.spec.obligations import Verdict, worst
from copyproof.spec.rule import REFERENCE, Relation, Rule
from copyproof.verify.deciders import Decision, Model, by_cvc5, by_z3, finite_model, fragment

_MOST_TARGETS = 3
_MOST_STEPS = 11
_ONE_OPERAND = (
    "(assert (forall ((s Step) (v Value) (w Value)) (=> (and (reads s v) (reads s w) (not (= s output))) (= v w))))\n"
)


@dataclass(frozen=True)
class QueryProof:
    """One query, decided.

    Attributes:
        query: what was asked.
        decisions: what Z3 and cvc5 say of it.
        premises: what Z3 says of its premises alone; `unsat` means that they contradict each other.
        undecidable: why the solvers need not come to an end on it, or None if they must.
    """

    query: Query
    decisions: tuple[Decision, ...]
    premises: Decision
    undecidable: str | None

    @property
    def verdict(self) -> Verdict:
        """PROVED if both solvers refute the goal's negation, under premises that agree; REFUTED if one has a model of
        it and the other does not object; else UNKNOWN."""
        said = {decision.status for decision in self.decisions}
        if said == {"unsat"} and self.premises.status == "sat":
            return Verdict.PROVED
        return Verdict.REFUTED if "sat" in said and "unsat" not in said else Verdict.UNKNOWN


@dataclass(frozen=True)
class RuleProof:
    """The three lemmas about a rule, query by query.

    Attributes:
        rule: the rule.
        queries: the queries of all lemmas.
        plenty: what cvc5 says of L1's premises with two targets, a read through a lowered view, a copy of another
            target, a swap, an escape and an overlap, as far as the rule speaks of them; `sat` means that the lemma is
            not about nothing.
    """

    rule: Rule
    queries: tuple[QueryProof, ...]
    plenty: Decision

    @property
    def verdict(self) -> Verdict:
        """The worst of the queries' verdicts; a rule that nothing can be placed by is never PROVED."""
        found = worst([proof.verdict for proof in self.queries])
        return Verdict.UNKNOWN if found is Verdict.PROVED and self.plenty.status != "sat" else found

    def lemma(self, name: str) -> Verdict:
        """The verdict on one lemma: L1, L2 or L3."""
        return worst([proof.verdict for proof in self.queries if proof.query.lemma == name])

    def as_lines(self) -> list[str]:
        """A table: a line for each query, with what each solver said and its seconds."""
        lines = [f"{self.verdict.value}  the {self.rule.name} rule, for graphs of any size"]
        for proof in self.queries:
            said = "  ".join(f"{d.solver} {d.status} {d.seconds:.2f} s" for d in proof.decisions)
            lines.append(f"{proof.query.lemma}  {proof.query.name:<34} {proof.verdict.value:<8} {said}")
        return lines


def prove_rule(rule: Rule = REFERENCE, timeout: float = 60) -> RuleProof:
    """Has Z3 and cvc5 decide every query of the three lemmas about `rule`.

    Args:
        rule: what a pass places write-backs by.
        timeout: seconds for each query and solver.

    Raises:
        BadInput: cvc5 is not installed.
    """
    agreement = cache(lambda theory: by_z3(f"{theory}(check-sat)\n", timeout))
    proofs = tuple(
        QueryProof(
            query,
            (by_z3(query.text, timeout), by_cvc5(query.text, timeout)),
            agreement(query.theory),
            fragment(query.text),
        )
        for query in (*first_lemma(rule), *second_lemma(), *third_lemma(rule))
    )
    return RuleProof(rule, proofs, by_cvc5(with_plenty(first_lemma(rule)[0], rule).premises_text, timeout))


def with_plenty(query: Query, rule: Rule) -> Query:
    """The query about programs with something of all that `rule` speaks of."""
    return replace(query, premises=(*query.premises, *plenty(rule)))


class StepKind(Enum):
    """What a step of a counter-model is."""

    PLACEHOLDER = "placeholder"
    SOURCE = "definition of a source"
    COMPUTATION = "definition of another value"
    SCHEMA_VIEW = "schema view"
    LOWERED_VIEW = "lowered view"
    READ = "pure read"
    IN_PLACE = "in-place write"
    CLONE = "clone"
    WRITE_BACK = "write-back"
    OUTPUT = "output"


@dataclass(frozen=True)
class ModelStep:
    """One step of a counter-model: the name of what it makes, its kind, the operator and what it is called on, its
    target if it is a write-back, and its part in the conflict if it has one."""

    name: str
    kind: StepKind
    operator: str
    operands: tuple[str, ...] = ()
    target: str | None = None
    note: str = ""

    @property
    def statement(self) -> str:
        """How it is written: `op(b, x)`."""
        called = ", ".join(self.operands)
        if self.kind is StepKind.OUTPUT:
            return f"{self.operator} {called}".strip()
        return self.operator if self.kind is StepKind.PLACEHOLDER else f"{self.operator}({called})"


@dataclass(frozen=True)
class RuleConflict:
    """What goes wrong in a counter-model.

    Attributes:
        fact: that it does not happen, which the rule should but does not imply.
        write_back: the name of the write-back W2.
        step: the step that should come first and does not: its name, or how it is written if it makes nothing.
        relation: how the step stands to the write-back, of which the rule says nothing.
    """

    fact: Fact
    write_back: str
    step: str
    relation: Relation


@dataclass(frozen=True)
class CounterModel:
    """A graph with write-backs that meets all that a rule demands, and has a conflict nevertheless.

    Attributes:
        rule: the rule's name.
        targets: the names of the targets.
        steps: the steps in order.
        conflict: what goes wrong.
    """

    rule: str
    targets: tuple[str, ...]
    steps: tuple[ModelStep, ...]
    conflict: RuleConflict

    def as_lines(self) -> list[str]:
        """The graph, a step a line, with the parts of the conflict noted."""
        width = max(len(step.name) for step in self.steps)
        lines = []
        for step in self.steps:
            text = f"{step.name:<{width}} = {step.statement}" if step.name else step.statement
            lines.append(f"{text:<36}# {step.note}" if step.note else text)
        return lines


def counter_model(rule: Rule, timeout: float = 60) -> CounterModel | None:
    """The smallest graph that `rule` gets wrong: with the fewest targets, then steps, then values.

    Args:
        rule: what a pass places write-backs by.
        timeout: seconds for each question to Z3.

    Returns:
        None if L1 holds of the rule, or no graph of at most 3 targets and 11 steps was found that it gets wrong.
    """
    for query in first_lemma(rule):
        if "(t Target)" in query.goal.formula and by_z3(query.text, timeout).status != "unsat":
            found = _smallest(query, rule, timeout)
            if found is not None:
                return _Reader(found, rule, query.goal).counter_model()
    return None


def _smallest(query: Query, rule: Rule, timeout: float) -> Model | None:
    constants, body = query.goal.opened
    vocabulary, premises = (*query.vocabulary, *LIKENESS), (*query.premises, *like_a_graph(rule))
    asked = f"{constants}(assert (not {body}))\n" + "".join(
        f"(declare-const in_{s.name} Bool)\n(assert (= in_{s.name} ({s.name} s t)))\n" for s in RELATIONS
    )
    text = replace(query, vocabulary=vocabulary, premises=premises).theory + asked
    for targets in range(1, _MOST_TARGETS + 1):
        if by_z3(query.text + _at_most("Target", targets), timeout).status == "unsat":
            continue
        for steps in range(2 * targets + 1, _MOST_STEPS + 1):
            for values in range(targets, steps - targets):
                sizes = {"Target": targets, "Step": steps + 1, "Value": values, "Cell": values}
                for preferred in (_ONE_OPERAND, ""):
                    found = finite_model(text + _in_order(steps) + preferred, sizes, timeout)
                    if isinstance(found, Model):
                        return found
    return None


def _at_most(sort: str, size: int) -> str:
    constants = "".join(f"(declare-const {sort}!{i} {sort})\n" for i in range(size))
    return f"{constants}(assert (forall ((e {sort})) (or {' '.join(f'(= e {sort}!{i})' for i in range(size))})))\n"


def _in_order(steps: int) -> str:
    """All steps but the last run, in the order of their numbers; the last stands for clones that are not made."""
    lines = [f"(assert (not (runs Step!{steps})))"]
    for i in range(steps):
        lines.append(f"(assert (runs Step!{i}))")
        lines += [f"(assert (before Step!{i} Step!{j}))" for j in range(i + 1, steps)]
    return "\n".join(lines) + "\n"


class _Reader:
    """Reads a model as a graph."""

    def __init__(self, model: Model, rule: Rule, fact: Fact) -> None:
        self.model, self.rule, self.fact = model, rule, fact
        self.values = sorted(model.elements["Value"], key=lambda v: self._position(model("defined", v)))
        self.targets = sorted(model.elements["Target"], key=lambda t: self._position(model("write_back", t)))
        self.sources = {model("source", t) for t in self.targets}
        self.names: dict[str, str] = {}
        selves = [v for v in self.values if v in {model("self", t) for t in self.targets}]
        self.names = dict(zip(selves, "b" if len(selves) == 1 else "abc", strict=False))
        for value in self.values:
            if value not in self.names:
                self._name(value)

    @staticmethod
    def _position(step: str) -> int:
        return int(step.partition("!")[2])

    def _name(self, value: str) -> None:
        defined = self.model("defined", value)
        stem = "y"
        if self.model("placeholder", defined):
            stem = "x"
        elif not self.model("root", value):
            stem = "v"
        elif value in self.sources:
            stem = "new"
        taken = set(self.names.values())
        self.names[value] = next(n for i in range(1, 99) if (n := stem if i == 1 else f"{stem}{i}") not in taken)

    def counter_model(self) -> CounterModel:
        """The graph and its conflict."""
        running = [s for s in self.model.elements["Step"] if self.model("runs", s)]
        steps = {step: self._step(step) for step in sorted(running, key=self._position)}
        step, target = self.model("s"), self.model("t")
        write_back = self.model("write_back", target)
        relation = next(r for r in Relation if self.model(f"in_{relation_name(r)}") and not self.rule.demands(r))
        for noted, note in self._notes(step, target, relation).items():
            steps[noted] = replace(steps[noted], note=note)
        late = steps[step].statement if steps[step].name in ("", "_") else steps[step].name
        conflict = RuleConflict(self.fact, steps[write_back].name, late, relation)
        names = tuple(self.names[self.model("self", t)] for t in self.targets)
        return CounterModel(self.rule.name, names, tuple(steps.values()), conflict)

    def _notes(self, step: str, target: str, relation: Relation) -> dict[str, str]:
        """The part of each step of the conflict."""
        model, b = self.model, self.names[self.model("self", target)]
        write_back, source = model("write_back", target), self.names[model("source", target)]
        stale = f"R   reads {b}'s old contents, and sees new ones"
        wrote = {model("defined", model("self", target)): "W1  the last write that R should see"}
        if relation in (Relation.SOURCE_DEFINITION, Relation.SOURCE_WRITE):
            looks = "clone_of_source" if model("runs", model("clone_of_source", target)) else "write_back"
            return {
                step: "W1  the last write that R should see",
                model(looks, target): f"R   the write-back reads {source} before that",
            }
        if relation is Relation.OVERLAP:
            return wrote | {write_back: f"W2, R  the write-back overwrites {b} while it reads it"}
        if relation is Relation.PLACEHOLDER or self.fact.name == "no-late-write":
            return {write_back: "W2  the write-back", step: f"W1  writes {b} only now, over what was written back"}
        return wrote | {write_back: "W2  the write-back", step: stale}

    def _step(self, step: str) -> ModelStep:
        for target in self.targets:
            if step == self.model("write_back", target):
                return self._write_back(target)
            if step == self.model("clone_of_source", target):
                source = self.names[self.model("source", target)]
                return ModelStep(f"{source}_clone", StepKind.CLONE, "clone", (source,))
        for value in self.values:
            if step == self.model("clone_of_output", value):
                return ModelStep(f"{self.names[value]}_clone", StepKind.CLONE, "clone", (self.names[value],))
        return self._original(step)

    def _write_back(self, target: str) -> ModelStep:
        name, source = self.names[self.model("self", target)], self.names[self.model("source", target)]
        if self.model("runs", self.model("clone_of_source", target)):
            source += "_clone"
        own = "copy_" if len(self.targets) == 1 else f"copy_{name}"
        return ModelStep(own, StepKind.WRITE_BACK, "copy_", (name, source), name)

    def _original(self, step: str) -> ModelStep:
        model = self.model
        read = [self.names[v] for v in self.values if model("reads", step, v)]
        if step == model("output"):
            escaped = {self.names[v] for v in self.values if model("runs", model("clone_of_output", v))}
            returned = tuple(f"{name}_clone" if name in escaped else name for name in read)
            return ModelStep("", StepKind.OUTPUT, "return", returned)
        written = [c for c in model.elements["Cell"] if model("writes", step, c)]
        if written:
            owner = next(v for v in self.values if model("covers", v, written[0]))
            operands = (self.names[owner], *(name for name in read if name != self.names[owner]))
            return ModelStep("_", StepKind.IN_PLACE, "write_", operands)
        value = next((v for v in self.values if model("defined", v) == step), None)
        if value is None:
            return ModelStep("_", StepKind.READ, "read", tuple(read))
        return self._definition(step, value, read)

    def _definition(self, step: str, value: str, read: list[str]) -> ModelStep:
        name = self.names[value]
        if self.model("placeholder", step):
            return ModelStep(name, StepKind.PLACEHOLDER, "placeholder")
        if not self.model("root", value):
            base = next(self.names[b] for b in self.values if self.model("viewed", value, b))
            if self.model("lowered", value):
                return ModelStep(name, StepKind.LOWERED_VIEW, "view_copy", (base,))
            return ModelStep(name, StepKind.SCHEMA_VIEW, "view", (base,))
        kind = StepKind.SOURCE if value in self.sources else StepKind.READ if read else StepKind.COMPUTATION
        return ModelStep(name, kind, "op", tuple(read))
