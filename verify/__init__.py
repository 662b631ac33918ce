"""The prover: is a rewritten graph right for its original?

Open `prover.py` first: `prove` and `prove_pass`. `frontend.py` reads graphs, `evaluate.py` gives them meaning,
`safety.py` and `quality.py` state the obligations as queries, `solver.py` asks Z3 (and `arithmetic.py` about regions),
`explain.py` and `witness.py` make a refutation one that can be read and seen.
"""

from copyproof.spec.errors import BadInput
from copyproof.verify.prover import prove, prove_pass
from copyproof.verify.verdicts import Conflict, Finding, Report

__all__ = ["BadInput", "Conflict", "Finding", "Report", "prove", "prove_pass"]
