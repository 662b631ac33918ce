"""The prover: is a rewritten graph, or a finished `.pte` file, right for its original?

Open `prover.py` first: `prove` and `prove_pass`. `frontend.py` reads graphs, `evaluate.py` gives them meaning
(`trace.py`), `safety.py` and `quality.py` state the obligations as queries, `solver.py` asks Z3 (and `arithmetic.py`
about regions), `explain.py` and `witness.py` make a refutation one that can be read and seen.

For files open `program.py`: `prove_program`. `serialized.py` and `lowered.py` make machines (`machine.py`) of files and
of lowered graphs; `follow.py` says what a machine computes (`calls.py` call by call, `execution.py` in which terms),
`plan.py` and `sharing.py` what a plan owes, `difference.py` where it comes apart from the model, `stages.py` which
stage of the pipeline is at fault; `guard.py` guards `to_executorch`. These need executorch, and are imported when they
are first asked for.

For all graphs open `exhaustive/` (every small program) and `rule_proof.py` (the rule, for graphs of any size, decided
in `deciders.py`); `conformance.py` says whether a pass stands where its rule says, `passes.py` knows passes by name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from copyproof.spec.errors import BadInput
from copyproof.verify.prover import prove, prove_pass
from copyproof.verify.verdicts import Conflict, Finding, Report

if TYPE_CHECKING:
    from copyproof.verify.guard import Refuted, guarded
    from copyproof.verify.program import external_data, prove_program
    from copyproof.verify.stages import prove_lowering

__all__ = [
    "BadInput",
    "Conflict",
    "Finding",
    "Refuted",
    "Report",
    "external_data",
    "guarded",
    "prove",
    "prove_lowering",
    "prove_pass",
    "prove_program",
]

_OF_FILES = {
    "Refuted": "guard",
    "external_data": "program",
    "guarded": "guard",
    "prove_lowering": "stages",
    "prove_program": "program",
}


def __getattr__(name: str) -> Any:
    if name not in _OF_FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"copyproof.verify.{_OF_FILES[name]}"), name)
