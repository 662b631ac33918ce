"""L3, the rule can be met: placing one step after the other never gets stuck, and what comes out meets each demand."""

from __future__ import annotations

from copyproof.spec.lemmas.exclusion import (
    CLONE_FIRST,
    ORIGINAL,
    PROGRAM,
    RELATIONS,
    RUNNING,
    apart_steps,
    demands,
    placed,
    relation_name,
)
from copyproof.spec.lemmas.formulas import Fact, Query, combined, facts, formula_of, symbols
from copyproof.spec.rule import Relation, Remedy, Rule

_PUTTING = """
put_in{after} (Step) Bool: a write-back or clone that was put into the graph{when}
prior{after} (Step Step) Bool: of two steps put in{when}, the first was put in first
slot{after} (Target) Step: the original step that the write-back is to follow{when}, or follows
slot_of_clone{after} (Target) Step: the original step that the clone of the source follows{when}
slot_of_output{after} (Value) Step: the original step that the clone of the output follows{when}
"""
PLACING = (
    *symbols(
        "bound (Target) Step: the last original step that the rule, other write-backs left aside, makes it wait for"
    ),
    *symbols(_PUTTING, after="", when=" before the action"),
    *symbols(_PUTTING, after="_after", when=" after the action"),
    *symbols("""
the_target () Target: the target whose write-back or clone is put in
the_value () Value: the returned value that is cloned
the_slot () Step: the original step that it is put in after
inner (x) Bool: an original step that something can be put in after
  (and (original x) (not (= x output)))
ready (t) Bool: what reads the target's old contents is put in, or reads a clone that is
  (and (forall (o) (=> (copies_from o t) (or (put_in (write_back o)) (put_in (clone_of_source o)))))
       (=> (overlaps t) (put_in (clone_of_source t)))
       (forall (v) (=> (escapes v t) (put_in (clone_of_output v)))))
follows (Step Step) Bool: in the end, the step that was put in stands in the slot after the original step
present (x) Bool: an original step, or one that was put in after one
  (or (original x) (and (put_in x) (exists (p) (and (inner p) (follows x p)))))
"""),
)
"""The words for how a pass places write-backs: one action after another, each of which puts one step in, behind what
already stands in the slot after an original step."""
_KEPT = """
clones-of-sources: a clone of a source comes after what its write-back waits for, and before that
  (forall (t) (=> (put_in{after} (clone_of_source t)) (and
    (inner (slot_of_clone{after} t)) (upto (bound t) (slot_of_clone{after} t))
    (upto (slot_of_clone{after} t) (slot{after} t))
    (=> (put_in{after} (write_back t)) (prior{after} (clone_of_source t) (write_back t))))))
clones-of-outputs: a clone of an output comes after the value is final, before the write-back of what it aliases
  (forall (v) (=> (put_in{after} (clone_of_output v)) (and
    (reads output v) (inner (slot_of_output{after} v))
    (forall (s) (=> (settles s v) (upto s (slot_of_output{after} v))))
    (forall (t) (=> (escapes v t) (and (upto (slot_of_output{after} v) (slot{after} t))
      (=> (put_in{after} (write_back t)) (prior{after} (clone_of_output v) (write_back t)))))))))
slots: a write-back comes after what it waits for
  (forall (t) (and (inner (slot{after} t)) (upto (bound t) (slot{after} t))))
puts: only what is put in has an order, and it is no original step
  (forall (x y) (and (=> (prior{after} x y) (and (put_in{after} x) (put_in{after} y)))
                     (=> (put_in{after} x) (not (original x)))))
puts-in-order: what is put in has a strict total order
  (forall (x y z) (and (not (prior{after} x x)) (=> (and (prior{after} x y) (prior{after} y z)) (prior{after} x z))
    (=> (and (put_in{after} x) (put_in{after} y) (not (= x y))) (or (prior{after} x y) (prior{after} y x)))))
readers-first: a write-back that reads a target's old contents, and no clone, is put in first, and no later
  (forall (o t) (=> (and (copies_from o t) (not (put_in{after} (clone_of_source o)))) (and
    (=> (put_in{after} (write_back t))
        (and (put_in{after} (write_back o)) (prior{after} (write_back o) (write_back t))))
    (=> (put_in{after} (write_back o)) (upto (slot{after} o) (slot{after} t))))))
clones-first: the clone of a source that is another target's old contents is put in before that target's write-back
  (forall (o t) (=> (and (copies_from o t) (put_in{after} (clone_of_source o))) (and
    (upto (slot_of_clone{after} o) (slot{after} t))
    (=> (put_in{after} (write_back t)) (prior{after} (clone_of_source o) (write_back t))))))
overlaps-cloned: no write-back is put in whose source overlaps the target and is not cloned
  (forall (t) (=> (and (overlaps t) (put_in{after} (write_back t))) (put_in{after} (clone_of_source t))))
escapes-cloned: no write-back is put in before the clones of the outputs that alias the target
  (forall (v t) (=> (and (escapes v t) (put_in{after} (write_back t))) (put_in{after} (clone_of_output v))))
"""
KEPT = facts(_KEPT, after="")
KEPT_AFTER = facts(_KEPT, after="_after")
"""What every action keeps true."""

NOTHING_PUT_IN = facts("""
nothing: nothing is put in, and each write-back is to follow the last step that it waits for
  (and (forall (x) (not (put_in x))) (forall (x y) (not (prior x y))) (forall (t) (= (slot t) (bound t))))
""")
_ACTION = """
appended: the step is put in, behind all that was put in before
  (and (forall (x) (= (put_in_after x) (or (put_in x) (= x {step}))))
       (forall (x y) (= (prior_after x y) (or (prior x y) (and (put_in x) (= y {step}))))))
slots-move: what must not come before it, and is not put in yet, moves to its slot
  (forall (t) (= (slot_after t)
                 (ite (and {pushed} (not (put_in (write_back t))) (before (slot t) the_slot)) the_slot (slot t))))
slots-of-clones: the slot of a clone of a source is set when it is put in
  (forall (t) (= (slot_of_clone_after t) {slot_of_clone}))
slots-of-outputs: the slot of a clone of an output is set when it is put in
  (forall (v) (= (slot_of_output_after v) {slot_of_output}))
"""
_TOUCHED = "(or (= t the_target) (copies_from the_target t))"
ACTIONS = {
    "clone-a-source": facts(
        """
action: the source of a target that is not written back yet is cloned, not before what the target waits for
  (and (not (put_in (write_back the_target))) (not (put_in (clone_of_source the_target)))
       (inner the_slot) (upto (slot the_target) the_slot))
"""
        + _ACTION,
        step="(clone_of_source the_target)",
        pushed=_TOUCHED,
        slot_of_clone="(ite (= t the_target) the_slot (slot_of_clone t))",
        slot_of_output="(slot_of_output v)",
    ),
    "clone-an-output": facts(
        """
action: an output is cloned that is an alias of a target, not before what that waits for
  (and (escapes the_value the_target) (not (put_in (clone_of_output the_value))) (inner the_slot)
       (forall (t) (=> (escapes the_value t) (upto (slot t) the_slot))))
"""
        + _ACTION,
        step="(clone_of_output the_value)",
        pushed="(escapes the_value t)",
        slot_of_clone="(slot_of_clone t)",
        slot_of_output="(ite (= v the_value) the_slot (slot_of_output v))",
    ),
    "write-back": facts(
        """
action: a write-back that is ready is put in, not before what it waits for
  (and (not (put_in (write_back the_target))) (ready the_target) (inner the_slot) (upto (slot the_target) the_slot))
"""
        + _ACTION,
        step="(write_back the_target)",
        pushed=_TOUCHED,
        slot_of_clone="(slot_of_clone t)",
        slot_of_output="(slot_of_output v)",
    ),
}
"""What a pass does, in any order of its own. A cycle is broken by cloning the source of any one of its targets; its
write-backs are then ready one after the other."""

FINISHED = facts("""
all-put-in: every write-back is put in
  (forall (t) (put_in (write_back t)))
running: what runs is the original steps and what was put in
  (forall (x) (= (runs x) (or (original x) (put_in x))))
broken-where-cloned: a cycle is broken where the source is cloned
  (forall (t) (= (broken t) (cloned t)))
in-their-slots: what was put in stands in its slot
  (and (forall (t) (and (follows (write_back t) (slot t)) (follows (clone_of_source t) (slot_of_clone t))))
       (forall (v) (follows (clone_of_output v) (slot_of_output v))))
slots-are-after: what was put in after an original step comes after it and before the next original step
  (forall (x y p) (=> (and (put_in x) (follows x p) (original y))
                      (and (= (before y x) (upto y p)) (= (before x y) (before p y)))))
slots-in-order: of two steps put in, the one with the earlier slot comes first, in one slot the one put in first
  (forall (x y s p) (=> (and (put_in x) (put_in y) (follows x s) (follows y p))
                        (= (before x y) (or (before s p) (and (= s p) (prior x y))))))
""")
"""Where the steps stand when no target is left."""


LEFT = facts("""
left: a target is not written back yet
  (not (put_in (write_back the_target)))
""")
PROGRESS = facts("""
progress: its write-back is ready, or the source of a target that is left can be cloned, or one of its outputs can be
  (or (ready the_target)
      (exists (o p) (and (not (put_in (write_back o))) (not (put_in (clone_of_source o))) (inner p) (upto (slot o) p)
                         (or (copies_from o the_target) (= o the_target))))
      (exists (v) (and (escapes v the_target) (not (put_in (clone_of_output v))))))
""")


def _waits(rule: Rule, then: str) -> list[tuple[str, str]]:
    """For each constraint that makes write-backs wait for original steps: its name, and that for each such step s and
    target t what `then` says holds."""
    found = []
    for constraint in rule.constraints:
        relation = constraint.relation
        if relation is Relation.ESCAPE:
            found.append((constraint.name, f"(forall (s v t) (=> (and (escapes v t) (settles s v)) {then}))"))
        elif constraint.remedy is Remedy.WAIT and relation is not Relation.COPY_READ:
            found.append((constraint.name, f"(forall (s t) (=> ({relation_name(relation)} s t) {then}))"))
    return [(name, formula_of(text)) for name, text in found]


def third_lemma(rule: Rule) -> tuple[Query, ...]:
    """L3: the demands of `rule` can be met in every graph. Cloning and placing one step after the other, at slots that
    are not too early, never gets stuck, so it ends, with all targets written back; and what comes out is a rewritten
    program that meets each demand. Queries for the bounds, the start, each action, progress, and what comes out."""
    order, uncloned = placed("original"), apart_steps("true", "true")
    inner = "an original step, and not the output, is what a write-back waits for by"
    waits = tuple(Fact(f"inner-{name}", f"{inner} {name}", text) for name, text in _waits(rule, "(inner s)"))
    last = "the bound of a write-back is not before what it waits for by"
    bounds = (
        *facts("inner-bounds: bounds are original steps, and none is the output\n  (forall (t) (inner (bound t)))"),
        *(Fact(f"bound-{name}", f"{last} {name}", text) for name, text in _waits(rule, "(upto s (bound t))")),
    )

    def query(name: str, premises: tuple[Fact, ...], goals: tuple[Fact, ...]) -> Query:
        vocabulary = (*PROGRAM, *RELATIONS, *PLACING)
        return Query("L3", name, vocabulary, (*ORIGINAL, *uncloned, *order, *premises), combined(name, goals))

    queries = [query("bounds", (), waits), query("start", (*bounds, *NOTHING_PUT_IN), KEPT)]
    queries += [query(name, (*bounds, *KEPT, *action), KEPT_AFTER) for name, action in ACTIONS.items()]
    queries.append(query("progress", (*bounds, *KEPT, *LEFT), PROGRESS))
    named = {constraint.name for constraint in rule.constraints}
    asked = [fact for fact in demands(rule) if fact.name in named]
    for goal in (*RUNNING, *apart_steps("(cloned t)", "(escaped v)"), *placed("present"), *CLONE_FIRST, *asked):
        queries.append(query(f"finish-{goal.name}", (*bounds, *KEPT, *FINISHED), (goal,)))
    return tuple(queries)
