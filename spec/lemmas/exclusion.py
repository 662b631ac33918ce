"""L1, the rule is enough: a rewritten program that meets every demand of the rule has no conflict.

What a `Rule` demands becomes facts here and nowhere else: a relation a formula, a constraint a premise.
"""

from __future__ import annotations

from copyproof.spec.lemmas.formulas import Fact, Query, Symbol, facts, formula_of, sorted_letters, symbols
from copyproof.spec.rule import Relation, Remedy, Rule

PROGRAM = symbols("""
before (Step Step) Bool: the first step comes before the second
original (Step) Bool: a step of the original graph
runs (Step) Bool: a step of the rewritten graph, be it an original one or one that was put in
placeholder (Step) Bool: a placeholder
output () Step: the output node
defined (Value) Step: the step that names the value
reads (Step Value) Bool: an original step looks at the value's contents; the output at what it returns
writes (Step Cell) Bool: an original step overwrites the element of memory in place
covers (Value Cell) Bool: the value's region has the element of memory, once lowered
self (Target) Value: the target's placeholder
source (Target) Value: the value that is to be the target's new one
through_schema (Value Target) Bool: an alias of the target that the operator schemas declare
through_lowering (Value Target) Bool: an alias of the target that only the lowering makes
write_back (Target) Step: the step that copies the source into the target
clone_of_source (Target) Step: the step, if it runs, that clones the source for the write-back
clone_of_output (Value) Step: the step, if it runs, that clones the value for the output to return
broken (Target) Bool: at the target's write-back a cycle of write-backs that wait for each other is broken
cloned (t) Bool: the write-back copies a clone of its source
  (runs (clone_of_source t))
escaped (v) Bool: the output returns a clone of the value
  (runs (clone_of_output v))
upto (x y) Bool: the first step does not come after the second
  (or (= x y) (before x y))
looks (t) Step: the step at which the target's source is looked at
  (ite (cloned t) (clone_of_source t) (write_back t))
aliases (v t) Bool: the value is the target, or known to be an alias of it
  (or (= v (self t)) (through_schema v t) (through_lowering v t))
copies_from (o t) Bool: the write-back of o reads the old contents of t
  (and (not (= o t)) (aliases (source o) t))
escapes (v t) Bool: the output returns the value, an alias of the target's old contents
  (and (reads output v) (aliases v t))
overlaps (t) Bool: the source is an alias of the target itself
  (aliases (source t) t)
settles (s v) Bool: the step defines the value or writes into it
  (or (= s (defined v)) (exists (c) (and (writes s c) (covers v c))))
performs (s v) Bool: the step, as it runs, reads the value's memory
  (or (and (reads s v) (not (and (= s output) (escaped v))))
      (exists (t) (and (= s (looks t)) (= v (source t))))
      (and (escaped v) (= s (clone_of_output v))))
""")
"""The words for a rewritten program. A target is one that gets a write-back; one that is in place already is, like any
input that is no target, just a value."""

STANDS = {
    Relation.PLACEHOLDER: "(placeholder s)",
    Relation.SOURCE_DEFINITION: "(= s (defined (source t)))",
    Relation.SOURCE_WRITE: "(exists (c) (and (writes s c) (covers (source t) c)))",
    Relation.DIRECT_READ: """(or (and (reads s (self t)) (not (= s output)))
                                 (exists (c) (and (writes s c) (covers (self t) c))))""",
    Relation.VIEW_READ: "(exists (v) (and (reads s v) (not (= s output)) (through_schema v t)))",
    Relation.LOWERED_VIEW_READ: "(exists (v) (and (reads s v) (not (= s output)) (through_lowering v t)))",
    Relation.COPY_READ: "(exists (o) (and (= s (write_back o)) (copies_from o t) (not (broken o))))",
    Relation.ESCAPE: "(and (= s output) (exists (v) (escapes v t)))",
    Relation.CYCLE: "(exists (o) (and (= s (write_back o)) (copies_from o t) (broken o)))",
    Relation.OVERLAP: "(and (= s (write_back t)) (overlaps t))",
}
"""When a step s stands in a relation to the write-back of t. What writes into the target in place counts as if it read
it directly; of the write-backs of a cycle all but one stand in COPY_READ, and that one in CYCLE."""


def relation_name(relation: Relation) -> str:
    """The abbreviation that says, of a step and a target, that they stand in `relation`."""
    return f"is_{relation.name.lower()}"


RELATIONS = tuple(
    Symbol(
        relation_name(r), r.value, f"(define-fun {relation_name(r)} ({sorted_letters('s t')}) Bool {formula_of(body)})"
    )
    for r, body in STANDS.items()
)
_CLONES = {
    Relation.ESCAPE: """(and
        (forall (v t) (=> (escapes v t) (and (escaped v) (before (clone_of_output v) (write_back t)))))
        (forall (s v) (=> (and (escaped v) (settles s v)) (before s (clone_of_output v)))))""",
    Relation.CYCLE: """(forall (o t) (=> (and (copies_from o t) (broken o))
        (and (cloned o) (before (clone_of_source o) (write_back t)))))""",
    Relation.OVERLAP: "(forall (t) (=> (overlaps t) (cloned t)))",
}
_WAITS_FOR_SOURCE = (Relation.SOURCE_DEFINITION, Relation.SOURCE_WRITE)


def demands(rule: Rule) -> tuple[Fact, ...]:
    """What `rule` demands: a fact for each constraint, of the constraint's name, and that nothing is cloned that no
    constraint asks to clone."""
    found = []
    for constraint in rule.constraints:
        relation = constraint.relation
        if constraint.remedy is Remedy.CLONE:
            reading, formula = "a clone is read, made in time before the write-back, if", formula_of(_CLONES[relation])
        else:
            place = "looks" if relation in _WAITS_FOR_SOURCE else "write_back"
            reading = f"the {'look at the source' if place == 'looks' else 'write-back'} comes after the step, if"
            formula = formula_of(f"(forall (s t) (=> ({relation_name(relation)} s t) (before s ({place} t))))")
        found.append(Fact(constraint.name, f"{reading} {relation.value}", formula))
    if not rule.demands(Relation.ESCAPE):
        found += facts("no-clones-of-outputs: nothing asks to clone outputs\n  (forall (v) (not (escaped v)))")
    if not rule.demands(Relation.OVERLAP) and not rule.demands(Relation.CYCLE):
        found += facts("no-clones-of-sources: nothing asks to clone sources\n  (forall (t) (not (cloned t)))")
    return tuple(found)


def apart_steps(source: str, output: str) -> tuple[Fact, ...]:
    return facts(
        """
write-backs-apart: each write-back is a step of its own, and none of the original graph
  (forall (t o) (and (not (original (write_back t))) (=> (= (write_back t) (write_back o)) (= t o))))
clones-of-sources-apart: so is each clone of a source
  (forall (t o) (=> {source} (and
    (not (original (clone_of_source t))) (not (= (clone_of_source t) (write_back o)))
    (=> (= (clone_of_source t) (clone_of_source o)) (= t o)))))
clones-of-outputs-apart: so is each clone of an output
  (forall (v w o) (=> {output} (and
    (not (original (clone_of_output v))) (not (= (clone_of_output v) (write_back o)))
    (not (= (clone_of_output v) (clone_of_source o))) (=> (= (clone_of_output v) (clone_of_output w)) (= v w)))))
""",
        source=source,
        output=output,
    )


def placed(steps: str) -> tuple[Fact, ...]:
    return facts(
        """
irreflexive: no step comes before itself
  (forall (x) (=> ({steps} x) (not (before x x))))
transitive: what comes before an earlier step comes before a later one
  (forall (x y z) (=> (and ({steps} x) ({steps} y) ({steps} z) (before x y) (before y z)) (before x z)))
total: of two steps one comes before the other
  (forall (x y) (=> (and ({steps} x) ({steps} y) (not (= x y))) (or (before x y) (before y x))))
output-last: the output comes after every other step
  (forall (x) (=> (and ({steps} x) (not (= x output))) (before x output)))
""",
        steps=steps,
    )


CLONE_FIRST = facts("""
clone-first: a write-back comes after the clone that it copies
  (forall (t) (=> (cloned t) (before (clone_of_source t) (write_back t))))
""")
ORIGINAL = facts("""
definitions: values are named by original steps, and none by the output
  (forall (v) (and (original (defined v)) (not (= (defined v) output))))
readers: original steps read, and what they read was named before
  (forall (s v) (=> (reads s v) (and (original s) (before (defined v) s))))
writers: original steps write in place, and the output does not
  (forall (s c) (=> (writes s c) (and (original s) (not (= s output)))))
placeholders-are-original: placeholders are original steps, and none is the output
  (forall (s) (=> (placeholder s) (and (original s) (not (= s output)))))
targets: each target is named by a placeholder
  (forall (t) (placeholder (defined (self t))))
output-is-original: the output is an original step
  (original output)
table-of-effects: whatever shares an element of memory with a target is known to be an alias of it
  (forall (v c t) (=> (and (covers v c) (covers (self t) c)) (aliases v t)))
""")
"""What is so of every original graph."""

RUNNING = facts("""
original-steps-run: every original step runs
  (forall (s) (=> (original s) (runs s)))
write-backs-run: every write-back runs
  (forall (t) (runs (write_back t)))
clones-are-returned: what is cloned for the output to return it does return
  (forall (v) (=> (escaped v) (reads output v)))
""")
REWRITTEN = (*RUNNING, *apart_steps("(cloned t)", "(escaped v)"), *placed("runs"), *CLONE_FIRST)
"""What is so of every rewritten graph."""

NO_CONFLICT = facts("""
no-stale-read: no step reads a target's memory after its write-back
  (forall (s w c t) (=> (and (performs s w) (covers w c) (covers (self t) c) (not (= s (write_back t))))
                        (before s (write_back t))))
no-own-read: no write-back reads memory that it overwrites
  (forall (s w c t) (=> (and (= s (write_back t)) (performs s w) (covers w c)) (not (covers (self t) c))))
no-undefined-source: a source is looked at after it is defined
  (forall (s t) (=> (= s (defined (source t))) (before s (looks t))))
no-unfinished-source: a source is looked at after the last write into it
  (forall (s c t) (=> (and (writes s c) (covers (source t) c)) (before s (looks t))))
no-late-input: no placeholder fills a target's memory after its write-back
  (forall (s w c t) (=> (and (placeholder s) (= s (defined w)) (covers w c) (covers (self t) c))
                        (before s (write_back t))))
no-late-write: no original step writes a target's memory after its write-back
  (forall (s c t) (=> (and (writes s c) (covers (self t) c)) (before s (write_back t))))
no-unfinished-output: an output is cloned after it is defined, and after the last write into it
  (forall (s v) (=> (and (escaped v) (settles s v)) (before s (clone_of_output v))))
""")
"""That there is no conflict, kind by kind: what L1 proves and L2 presumes."""


def first_lemma(rule: Rule) -> tuple[Query, ...]:
    """L1: a rewritten program that meets all demands of `rule` has no conflict. A query for each kind of conflict."""
    premises = (*ORIGINAL, *REWRITTEN, *demands(rule))
    return tuple(Query("L1", kind.name, (*PROGRAM, *RELATIONS), premises, kind) for kind in NO_CONFLICT)
