"""L2, no conflict is enough: without conflicts the memory meaning refines the functional one, step by step."""

from __future__ import annotations

from copyproof.spec.lemmas.exclusion import NO_CONFLICT, ORIGINAL, PROGRAM, REWRITTEN
from copyproof.spec.lemmas.formulas import Fact, Query, combined, facts, symbols

_STATE = """
memory{after} (Cell) Datum: what the memory of the rewritten program holds{when}
holds{after} (Value Cell) Datum: what the value holds{when} in the functional meaning
kept{after} (Target Cell) Datum: what the clone of the target's source holds{when}
shown{after} (Value Cell) Datum: what the clone of a returned value holds{when}
"""
MEANING = (
    *symbols("""
root (Value) Bool: the value has memory of its own, made when it is named
viewed (Value Value) Bool: the first value is named as a view of the second
view_of (Value Value) Bool: the first value is the second, or a view of it, or a view of a view of it, and so on
changes (Step Value Cell) Bool: in the functional meaning, the in-place step changes this element of the value
outside (Cell) Bool: an element of memory that belongs to no target
gives (Target Cell Cell) Bool: the target's element (the first) is to receive the source's (the second)
final (Value Cell) Datum: what the value holds, in the functional meaning, after the last step
assigned (Target Cell) Datum: what the target is assigned, in the functional meaning, after the last step
now () Step: the step that is taken
the_target () Target: the target whose write-back or clone it is
the_value () Value: the value that the step clones, or names as a view
the_base () Value: what it is a view of
"""),
    *symbols(_STATE, after="", when=" before the step"),
    *symbols(_STATE, after="_after", when=" after the step"),
    *symbols("""
put (Cell) Datum: what the step writes into the element of memory
meant (Cell) Datum: what, in the functional meaning, the step writes there
done (x) Bool: the step was taken before this one
  (before x now)
done_after (x) Bool: the step was taken before this one, or is this one
  (upto x now)
pending (c) Bool: the original has writes of the element of memory still to come
  (exists (x) (and (writes x c) (not (done x))))
pending_after (c) Bool: the original has writes of the element of memory to come after this step
  (exists (x) (and (writes x c) (not (done_after x))))
made (c) Bool: the element of memory is new with this step
  (exists (v) (and (= (defined v) now) (root v) (covers v c)))
"""),
)
"""The words for what the functional meaning F and the memory meaning M do, step by step. F's contents of a value are
named by the elements of memory that it has in M: those of a lowered view by those of its base."""

MEMORY = facts("""
inputs-have-memory: what a placeholder names has memory of its own
  (forall (v) (=> (placeholder (defined v)) (root v)))
new-memory: memory of a value's own is not that of a value named before
  (forall (v w c) (=> (and (root v) (covers v c) (covers w c)) (not (before (defined w) (defined v)))))
views-of-themselves: every value counts as a view of itself
  (forall (v) (view_of v v))
views-of-views: a view of a view of a value is a view of the value
  (forall (v w b) (=> (and (view_of v w) (view_of w b)) (view_of v b)))
views: a view is a view, is named after its base, and has no memory of its own
  (forall (v b) (=> (viewed v b) (and (view_of v b) (before (defined b) (defined v)) (not (root v)))))
views-lie-within: a view has no memory that its base has not
  (forall (v b c) (=> (and (view_of v b) (covers v c)) (covers b c)))
changes-are-writes: what changes a value in the functional meaning writes its memory
  (forall (s v c) (=> (changes s v c) (and (writes s c) (covers v c))))
inputs-are-changed: what writes an input's memory changes the input in the functional meaning
  (forall (s v c) (=> (and (writes s c) (covers v c) (placeholder (defined v)) (before (defined v) s)) (changes s v c)))
snapshots: a value that memory shares with what is written, but that F leaves as it was, is not looked at any more
  (forall (s x v w c) (=> (and (writes s c) (covers w c) (view_of w v) (before (defined v) s) (not (changes s v c)))
    (and (=> (reads x w) (not (before s x))) (forall (t) (not (= w (source t)))))))
targets-apart: no two targets share memory
  (forall (t o c) (=> (and (covers (self t) c) (covers (self o) c)) (= t o)))
giving: a write-back moves from the source's memory to the target's
  (forall (t c d) (=> (gives t c d) (and (covers (self t) c) (covers (source t) d))))
outside: what is outside belongs to no target
  (forall (t c) (=> (outside c) (not (covers (self t) c))))
""")
"""How memory is named. In-place steps of the original are as the pass finds them once it has cloned what a lowered view
would show of them (`snapshots`, `inputs-are-changed`)."""

_INVARIANT = """
sees: where a step still to come reads a value named so far, memory holds what the functional meaning says
  (forall (v w s c) (=> (and (done{after} (defined v)) (view_of w v) (performs s w) (not (done{after} s)) (covers w c))
                        (= (memory{after} c) (holds{after} v c))))
written: a target that was written back holds what it is assigned
  (forall (t c d) (=> (and (done{after} (write_back t)) (gives t c d)) (= (memory{after} c) (assigned t c))))
framed: outside the targets, inputs hold what the functional meaning says
  (forall (v c) (=> (and (placeholder (defined v)) (done{after} (defined v)) (covers v c) (outside c))
                    (= (memory{after} c) (holds{after} v c))))
kept-final: the clone of a source holds its final contents
  (forall (t c) (=> (and (cloned t) (done{after} (clone_of_source t)) (covers (source t) c))
                    (= (kept{after} t c) (final (source t) c))))
shown-final: the clone of an output holds its final contents
  (forall (v c) (=> (and (escaped v) (done{after} (clone_of_output v)) (covers v c))
                    (= (shown{after} v c) (final v c))))
"""
_SETTLED = """
settled{after}: a value that no write will change any more holds its final contents in the functional meaning
  (forall (v c) (=> (and (done{after} (defined v)) (covers v c) (not (pending{after} c)))
                    (= (holds{after} v c) (final v c))))
"""
INVARIANT = facts(_INVARIANT, after="")
INVARIANT_AFTER = facts(_INVARIANT, after="_after")
SETTLED = facts(_SETTLED, after="")
SETTLED_AFTER = facts(_SETTLED, after="_after")

_TAKEN = facts("""
is-placeholder: the step is a placeholder, and names inputs
  (and (placeholder now) (forall (c) (not (writes now c))) (forall (v) (=> (= (defined v) now) (root v))))
is-pure: the step computes new values and writes nothing else
  (and (original now) (not (placeholder now)) (not (= now output)) (forall (c) (not (writes now c)))
       (forall (v) (=> (= (defined v) now) (root v))))
is-view: the step names a view, declared or lowered
  (and (original now) (not (= now output)) (forall (c) (not (writes now c))) (= (defined the_value) now)
       (viewed the_value the_base) (forall (v) (=> (= (defined v) now) (= v the_value))))
is-in-place: the step may write in place, into a target or another value, compute new values, and name one view
  (and (original now) (not (= now output))
       (forall (v) (=> (= (defined v) now) (or (root v) (and (= v the_value) (viewed the_value the_base))))))
is-clone-of-source: the step clones the source of a target
  (and (cloned the_target) (= now (clone_of_source the_target)))
is-clone-of-output: the step clones a value for the output to return
  (and (escaped the_value) (= now (clone_of_output the_value)))
is-write-back: the step is the write-back of a target
  (= now (write_back the_target))
functional-step: the functional meaning takes the step
  (forall (v b c) (=> (covers v c) (and
    (=> (and (= (defined v) now) (root v)) (= (holds_after v c) (meant c)))
    (=> (and (= (defined v) now) (viewed v b)) (= (holds_after v c) (holds_after b c)))
    (=> (and (not (= (defined v) now)) (changes now v c)) (= (holds_after v c) (meant c)))
    (=> (and (not (= (defined v) now)) (not (changes now v c))) (= (holds_after v c) (holds v c))))))
functional-rest: the functional meaning does not move
  (forall (v c) (= (holds_after v c) (holds v c)))
memory-step: the step puts something into the memory that it makes or writes, and leaves the rest
  (forall (c) (ite (or (made c) (writes now c)) (= (memory_after c) (put c)) (= (memory_after c) (memory c))))
function: if all that the step reads is what the functional meaning says, then so is what it puts
  (=> (forall (v c) (=> (and (reads now v) (covers v c)) (= (memory c) (holds v c))))
      (forall (c) (= (put c) (meant c))))
memory-rest: memory does not change
  (forall (c) (= (memory_after c) (memory c)))
source-cloned: the clone holds what memory holds of the source, and clones of other sources do not change
  (forall (t c) (= (kept_after t c) (ite (= t the_target) (memory c) (kept t c))))
kept-rest: clones of sources do not change
  (forall (t c) (= (kept_after t c) (kept t c)))
output-cloned: the clone holds what memory holds of the value, and clones of other outputs do not change
  (forall (v c) (= (shown_after v c) (ite (= v the_value) (memory c) (shown v c))))
shown-rest: clones of outputs do not change
  (forall (v c) (= (shown_after v c) (shown v c)))
copying: the write-back puts something into all of the target, and leaves the rest
  (forall (c) (= (memory_after c) (ite (covers (self the_target) c) (put c) (memory c))))
copied: it puts what is assigned, if a clone, or memory that it does not overwrite, holds the final contents
  (=> (not (exists (c) (and (not (cloned the_target)) (covers (self the_target) c) (covers (source the_target) c))))
      (forall (c d) (=> (and (gives the_target c d)
                             (= (ite (cloned the_target) (kept the_target d) (memory d)) (final (source the_target) d)))
                        (= (put c) (assigned the_target c)))))
""")
_COMPUTED = "functional-step memory-step function kept-rest shown-rest"
STEPS = {
    "placeholder": f"is-placeholder {_COMPUTED}",
    "pure": f"is-pure {_COMPUTED}",
    "view": f"is-view {_COMPUTED}",
    "in-place": f"is-in-place {_COMPUTED}",
    "clone-of-source": "is-clone-of-source functional-rest memory-rest source-cloned shown-rest",
    "clone-of-output": "is-clone-of-output functional-rest memory-rest kept-rest output-cloned",
    "write-back": "is-write-back functional-rest copying copied kept-rest shown-rest",
}
"""The kinds of steps, and the names of what both meanings do at each."""

START = facts("""
start: no step was taken
  (forall (x) (not (before x now)))
""")
ENDED = facts("""
final-contents: the step is the last one: final contents are those after it
  (forall (v c) (= (final v c) (holds_after v c)))
""")
END = facts("""
end: the step is the output
  (= now output)
""")
REFINEMENT = facts("""
STATE: every target holds what it is assigned
  (forall (t c d) (=> (gives t c d) (= (memory c) (assigned t c))))
OUTPUT: every value returned holds its final contents
  (forall (v c) (=> (and (reads output v) (covers v c)) (= (ite (escaped v) (shown v c) (memory c)) (final v c))))
FRAME: outside the targets, every input holds its final contents
  (forall (v c) (=> (and (placeholder (defined v)) (covers v c) (outside c)) (= (memory c) (final v c))))
""")


def second_lemma() -> tuple[Query, ...]:
    """L2: without conflicts the memory meaning refines the functional one, by induction over the steps. Queries for the
    start, each kind of step, and the end; that contents settle (`SETTLED`) is an induction of its own, from the end to
    the start, and a premise of the others."""
    known = (*ORIGINAL, *REWRITTEN, *NO_CONFLICT, *MEMORY)

    def query(name: str, premises: tuple[Fact, ...], goals: tuple[Fact, ...]) -> Query:
        return Query("L2", name, (*PROGRAM, *MEANING), (*known, *premises), combined(name, goals))

    settling = [query("settled-at-the-end", ENDED, SETTLED_AFTER)]
    steps = [query("start", START, INVARIANT)]
    for kind, names in STEPS.items():
        taken = tuple(fact for fact in _TAKEN if fact.name in names.split())
        functional = tuple(fact for fact in taken if fact.name.startswith(("is-", "functional-")))
        settling.append(query(f"settled-before-{kind}", (*functional, *SETTLED_AFTER), SETTLED))
        steps.append(query(kind, (*taken, *SETTLED, *INVARIANT), INVARIANT_AFTER))
    ends = [query(goal.name, (*END, *SETTLED, *INVARIANT), (goal,)) for goal in REFINEMENT]
    return (*settling, *steps, *ends)
