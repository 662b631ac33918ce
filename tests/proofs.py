"""The proof of a rule, made once for all tests of a process."""

from __future__ import annotations

from functools import cache

from copyproof.spec.rule import Rule
from copyproof.verify.rule_proof import RuleProof, prove_rule

SECONDS = 60


@cache
def proof_of(rule: Rule) -> RuleProof:
    """What both solvers say of the lemmas about `rule`."""
    return prove_rule(rule, SECONDS)
