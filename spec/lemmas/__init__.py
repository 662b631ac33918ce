"""Three lemmas about the placement rule, for graphs of any size, as formulas with readings.

Open `formulas.py` first, then `exclusion.py` (L1), `refinement.py` (L2), `placement.py` (L3); `examples.py` says what
makes a model worth looking at.
"""

STATEMENTS = {
    "L1": "the rule is enough: a rewritten program that meets every demand of the rule has no conflict",
    "L2": "no conflict is enough: without conflicts the memory meaning refines the functional one",
    "L3": "the rule can be met: cloning and placing one step after the other never gets stuck, and meets every demand",
}
"""The lemmas, each in a sentence; `spec/README.md` has them at length."""
