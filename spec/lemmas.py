"""Three lemmas about the placement rule, for graphs of any size: their vocabulary, premises and goals, as data.

Every premise and goal is a `Fact`: a formula of SMT-LIB 2 and how it reads. A `Query` proves a goal if its premises
and the goal's negation have no model. What a `Rule` demands becomes facts here and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from copyproof.spec.rule import Relation, Remedy, Rule

SORTS = ("Step", "Value", "Target", "Cell", "Datum")
"""A cell is one element of memory, a datum what it can hold."""

_LETTERS = {**dict.fromkeys("sxyzp", "Step"), **dict.fromkeys("vwb", "Value"), **dict.fromkeys("tou", "Target")}
_LETTERS |= dict.fromkeys("cd", "Cell")


def _sorted(letters: str) -> str:
    return " ".join(f"({letter} {_LETTERS[letter]})" for letter in letters.split())


def _formula(text: str) -> str:
    """SMT-LIB 2 text in which bound variables have sorts, of text in which their letters say the sort: s, x, y, z, p
    for Step; v, w, b for Value; t, o, u for Target; c, d for Cell."""
    found = re.sub(r"\((forall|exists) \(([a-z ]+)\)", lambda m: f"({m[1]} ({_sorted(m[2])})", text)
    return " ".join(found.split())


@dataclass(frozen=True)
class Fact:
    """A formula, and what it says."""

    name: str
    reading: str
    formula: str

    @property
    def opened(self) -> tuple[str, str]:
        """A formula `for all xs, body` as declarations of the xs as constants, and the body; ValueError for others."""
        found = re.fullmatch(r"\(forall \(((?:\(\w+ \w+\) ?)+)\) (.*)\)", self.formula)
        if found is None:
            raise ValueError(f"{self.name} is no statement about all of something")
        constants = re.findall(r"\((\w+) (\w+)\)", found[1])
        return "".join(f"(declare-const {name} {sort})\n" for name, sort in constants), found[2]


@dataclass(frozen=True)
class Symbol:
    """A function or predicate of the vocabulary, what it says, and its declaration in SMT-LIB 2: a definition, where it
    is an abbreviation."""

    name: str
    reading: str
    declaration: str


@dataclass(frozen=True)
class Query:
    """The goal follows from the premises, if their conjunction with its negation has no model.

    Attributes:
        lemma: L1, L2 or L3.
        name: for reports.
        vocabulary: what the formulas speak of.
        premises: what is assumed.
        goal: what is to be proved.
    """

    lemma: str
    name: str
    vocabulary: tuple[Symbol, ...]
    premises: tuple[Fact, ...]
    goal: Fact

    @property
    def text(self) -> str:
        """The whole query in SMT-LIB 2, its readings as comments: `unsat` means that the goal follows."""
        goal = f"; to prove: {self.goal.reading}\n(assert (not {self.goal.formula}))\n"
        return f"; {self.lemma}, {self.name}: unsat means proved\n{self.theory}{goal}(check-sat)\n"

    @property
    def premises_text(self) -> str:
        """The premises alone: `sat` means that they do not contradict each other."""
        return f"; {self.lemma}, {self.name}: sat means that the premises agree\n{self.theory}(check-sat)\n"

    @property
    def theory(self) -> str:
        """Declarations and premises, without a question."""
        declared = "".join(f"; {symbol.name}: {symbol.reading}\n{symbol.declaration}\n" for symbol in self.vocabulary)
        sorts = "".join(f"(declare-sort {sort} 0)\n" for sort in SORTS)
        premises = "".join(f"; {fact.name}: {fact.reading}\n(assert {fact.formula})\n" for fact in self.premises)
        return f"(set-logic UF)\n{sorts}{declared}{premises}"

    def without(self, premise: str) -> Query:
        """This query less one premise.

        Raises:
            KeyError: it has no premise of that name.
        """
        if premise not in {fact.name for fact in self.premises}:
            raise KeyError(f"no premise {premise!r} in {self.lemma}, {self.name}")
        return replace(self, premises=tuple(fact for fact in self.premises if fact.name != premise))


def facts(text: str, **names: str) -> tuple[Fact, ...]:
    """The facts of a text: for each a line `name: reading`, and its formula, indented; `names` fill in braces."""
    return tuple(Fact(head.split(": ", 1)[0], head.split(": ", 1)[1], body) for head, body in _entries(text, names))


def symbols(text: str, **names: str) -> tuple[Symbol, ...]:
    """The symbols of a text: for each a line `name (argument sorts) result: reading`. Where an indented definition
    follows, the arguments are letters."""
    found = []
    for head, body in _entries(text, names):
        parts = re.fullmatch(r"(\w+) \(([\w ]*)\) (\w+): (.*)", head)
        assert parts is not None, head
        name, arguments, result, reading = parts.groups()
        kind, arguments = ("define", _sorted(arguments)) if body else ("declare", arguments)
        found.append(Symbol(name, reading, f"({kind}-fun {name} ({arguments}) {result}{body and ' '}{body})"))
    return tuple(found)


def _entries(text: str, names: dict[str, str]) -> list[tuple[str, str]]:
    filled = re.sub(r"\{(\w+)\}", lambda m: names[m[1]], text)
    entries = re.split(r"\n(?=\S)", filled.strip())
    return [(head, _formula(body)) for head, _, body in (entry.partition("\n") for entry in entries)]


def combined(name: str, parts: tuple[Fact, ...]) -> Fact:
    """All `parts` as one fact."""
    return Fact(name, "; ".join(part.reading for part in parts), f"(and {' '.join(part.formula for part in parts)})")


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
    Symbol(relation_name(r), r.value, f"(define-fun {relation_name(r)} ({_sorted('s t')}) Bool {_formula(body)})")
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
            reading, formula = "a clone is read, made in time before the write-back, if", _formula(_CLONES[relation])
        else:
            place = "looks" if relation in _WAITS_FOR_SOURCE else "write_back"
            reading = f"the {'look at the source' if place == 'looks' else 'write-back'} comes after the step, if"
            formula = _formula(f"(forall (s t) (=> ({relation_name(relation)} s t) (before s ({place} t))))")
        found.append(Fact(constraint.name, f"{reading} {relation.value}", formula))
    if not rule.demands(Relation.ESCAPE):
        found += facts("no-clones-of-outputs: nothing asks to clone outputs\n  (forall (v) (not (escaped v)))")
    if not rule.demands(Relation.OVERLAP) and not rule.demands(Relation.CYCLE):
        found += facts("no-clones-of-sources: nothing asks to clone sources\n  (forall (t) (not (cloned t)))")
    return tuple(found)


def _apart(source: str, output: str) -> tuple[Fact, ...]:
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


def _placed(steps: str) -> tuple[Fact, ...]:
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
REWRITTEN = (*RUNNING, *_apart("(cloned t)", "(escaped v)"), *_placed("runs"), *CLONE_FIRST)
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
    return [(name, _formula(text)) for name, text in found]


def third_lemma(rule: Rule) -> tuple[Query, ...]:
    """L3: the demands of `rule` can be met in every graph. Cloning and placing one step after the other, at slots that
    are not too early, never gets stuck, so it ends, with all targets written back; and what comes out is a rewritten
    program that meets each demand. Queries for the bounds, the start, each action, progress, and what comes out."""
    order, apart = _placed("original"), _apart("true", "true")
    inner = "an original step, and not the output, is what a write-back waits for by"
    waits = tuple(Fact(f"inner-{name}", f"{inner} {name}", text) for name, text in _waits(rule, "(inner s)"))
    last = "the bound of a write-back is not before what it waits for by"
    bounds = (
        *facts("inner-bounds: bounds are original steps, and none is the output\n  (forall (t) (inner (bound t)))"),
        *(Fact(f"bound-{name}", f"{last} {name}", text) for name, text in _waits(rule, "(upto s (bound t))")),
    )

    def query(name: str, premises: tuple[Fact, ...], goals: tuple[Fact, ...]) -> Query:
        vocabulary = (*PROGRAM, *RELATIONS, *PLACING)
        return Query("L3", name, vocabulary, (*ORIGINAL, *apart, *order, *premises), combined(name, goals))

    queries = [query("bounds", (), waits), query("start", (*bounds, *NOTHING_PUT_IN), KEPT)]
    queries += [query(name, (*bounds, *KEPT, *action), KEPT_AFTER) for name, action in ACTIONS.items()]
    queries.append(query("progress", (*bounds, *KEPT, *LEFT), PROGRESS))
    asked = [fact for fact in demands(rule) if not fact.name.startswith("no-")]
    for goal in (*RUNNING, *_apart("(cloned t)", "(escaped v)"), *_placed("present"), *CLONE_FIRST, *asked):
        queries.append(query(f"finish-{goal.name}", (*bounds, *KEPT, *FINISHED), (goal,)))
    return tuple(queries)


_PLENTY = """
two-targets: there are two targets
  (exists (t o c d) (and (not (= t o)) (covers (self t) c) (covers (self o) d)))
lowered-read: old contents are read by an alias that only the lowering makes
  (exists (s v t c) (and (reads s v) (not (= s output)) (through_lowering v t) (not (through_schema v t))
                         (not (= v (self t))) (covers v c) (covers (self t) c)))
write-in-place: a source is written in place
  (exists (s t c) (and (writes s c) (covers (source t) c)))
"""
_PLENTY_OF = {
    Relation.COPY_READ: """
copy-read: a write-back reads another target
  (exists (o t c) (and (copies_from o t) (not (broken o)) (covers (source o) c) (covers (self t) c)))
""",
    Relation.CYCLE: """
swap: two targets are swapped, with a clone of one
  (exists (o t c) (and (copies_from o t) (copies_from t o) (broken o) (cloned o) (not (broken t))
                       (covers (source o) c) (covers (self t) c)))
""",
    Relation.ESCAPE: """
escape: old contents are returned, as a clone
  (exists (v t c) (and (escapes v t) (escaped v) (covers v c) (covers (self t) c)))
""",
    Relation.OVERLAP: """
overlap: a source overlaps its target
  (exists (t c) (and (overlaps t) (covers (source t) c) (covers (self t) c)))
""",
}


def plenty(rule: Rule) -> tuple[Fact, ...]:
    """That a program has something of all that `rule` speaks of: what premises must allow that are not vacuous."""
    return facts(_PLENTY + "".join(text for relation, text in _PLENTY_OF.items() if rule.demands(relation)))


LIKENESS = symbols("""
root (Value) Bool: the value has memory of its own, made when it is named
viewed (Value Value) Bool: the first value is named as a view of the second
lowered (Value) Bool: the value is a view only once lowered
leads (Target Target) Bool: the first target's write-back must, through others, come before the second's
""")
"""The words for what a counter-model has, besides, to be like a graph that one could write down."""

_LIKE_A_GRAPH = """
steps: every step that runs is of the original graph, a write-back or a clone
  (forall (s) (=> (runs s) (or (original s) (exists (t) (or (= s (write_back t)) (= s (clone_of_source t))))
                               (exists (v) (= s (clone_of_output v))))))
use: every original step names, reads or writes something
  (forall (s) (=> (original s) (or (= s output) (exists (v) (or (= s (defined v)) (reads s v)))
                                   (exists (c) (writes s c)))))
one-value: a step names one value
  (forall (v w) (=> (= (defined v) (defined w)) (= v w)))
one-element: memory that a value has of its own is one element
  (forall (v) (and (exists (c) (covers v c))
                   (forall (c d) (=> (and (root v) (covers v c) (covers v d)) (= c d)))))
own-memory: memory of a value's own is no other's
  (forall (v w c) (=> (and (root v) (root w) (covers v c) (covers w c)) (= v w)))
views-have-bases: what has no memory of its own is a view of one value, named before; to name it reads nothing
  (forall (v) (and (= (not (root v)) (exists (b) (viewed v b))) (=> (lowered v) (not (root v)))
    (forall (b w) (=> (and (viewed v b) (viewed v w)) (= b w)))
    (forall (b) (=> (viewed v b) (and (before (defined b) (defined v)) (forall (c) (= (covers v c) (covers b c)))
      (forall (w) (not (reads (defined v) w))) (forall (c) (not (writes (defined v) c))))))))
schema-aliases: aliases by schema are views of the target, and views of those
  (forall (v t) (= (through_schema v t) (exists (b) (and (viewed v b) (not (lowered v))
                                                         (or (= b (self t)) (through_schema b t))))))
lowered-aliases: aliases by lowering have a lowered view on their way
  (forall (v t) (= (through_lowering v t) (exists (b) (and (viewed v b) (or (and (lowered v) (aliases b t))
                                                                            (through_lowering b t))))))
inputs: placeholders come first, and each names a value with memory of its own
  (forall (s) (=> (placeholder s) (and (exists (v) (and (root v) (= s (defined v)))) (forall (v) (not (reads s v)))
    (forall (c) (not (writes s c))) (forall (x) (=> (and (original x) (not (placeholder x))) (before s x))))))
writes: what is written in place is one named element, and no lowered view shows it
  (forall (s c) (=> (writes s c) (and (exists (v) (and (covers v c) (before (defined v) s)))
    (forall (d) (=> (writes s d) (= c d))) (forall (v) (not (= s (defined v))))
    (forall (v) (=> (covers v c) (not (lowered v)))))))
returned: a returned view stays a copy when lowered
  (forall (v) (=> (reads output v) (not (lowered v))))
needed: a source is not the target itself, nor all of it in order
  (forall (t) (and (not (= (source t) (self t))) (not (through_lowering (source t) t))))
chains: write-backs lead to each other by copy-reads
  (forall (t o) (= (leads t o) (and (before (write_back t) (write_back o)) (or (copies_from t o)
    (exists (u) (and (copies_from t u) (before (write_back t) (write_back u)) (leads u o)))))))
cycles: where a cycle is broken there is one
  (forall (o) (=> (broken o) (exists (t) (and (copies_from o t) (leads t o)))))
outputs-cloned: an output is cloned if it is an alias of a target
  (forall (v) (=> (escaped v) (exists (t) (escapes v t))))
sources-cloned: a source is cloned to break a cycle, or because it overlaps its target
  (forall (t) (=> (cloned t) (or {reasons})))
"""


def like_a_graph(rule: Rule) -> tuple[Fact, ...]:
    """What makes a model of the premises one of a graph that could be written down and placed by `rule`. Only for
    models of a few elements: these formulas are in no decidable fragment."""
    reasons = ["false"]
    reasons += ["(broken t)"] if rule.demands(Relation.CYCLE) else []
    reasons += ["(overlaps t)"] if rule.demands(Relation.OVERLAP) else []
    return facts(_LIKE_A_GRAPH, reasons=" ".join(reasons))
