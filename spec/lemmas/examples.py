"""What graphs must be like for a premise not to be about nothing, and for a counter-model to be one that can be written
down."""

from __future__ import annotations

from copyproof.spec.lemmas.formulas import Fact, facts, symbols
from copyproof.spec.rule import Relation, Rule

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
