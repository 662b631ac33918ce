"""The reference pass: every write-back at its earliest legal point.

It has the contract of the pass that ExecuTorch ships, and is driven by a `Rule` of `copyproof.spec.rule`, so that
what is proved about the rule is about what runs.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram, ExportGraphSignature

from copyproof.impl.placement import Naming, Placement, WriteBackPass
from copyproof.spec.effects import EXECUTORCH, Profile
from copyproof.spec.rule import REFERENCE, Rule


def early_placement(
    rule: Rule = REFERENCE, outputs: Naming = "placeholder", profile: Profile = EXECUTORCH
) -> WriteBackPass:
    """A pass that places every write-back at the earliest point that `rule` allows.

    Args:
        rule: the ordering constraints and remedies; without `lowered-view-reads`, `profile` is not looked at.
        outputs: what the output node names for a buffer that is copied: its placeholder, or the `copy_`
            (`copyproof.impl.naming_for` says which a planner needs).
        profile: how the graph will be lowered.

    Returns:
        a callable `ExportedProgram -> (GraphModule, ExportGraphSignature)`, which rewrites its argument's graph and
        raises ValueError where the signature names a target that the graph lacks; its attribute `rule` is `rule`.
    """

    def place(program: ExportedProgram) -> tuple[torch.fx.GraphModule, ExportGraphSignature]:
        return Placement(program, rule, outputs, profile).run()

    place.rule = rule  # type: ignore[attr-defined]
    return place


def reference_pass(program: ExportedProgram) -> tuple[torch.fx.GraphModule, ExportGraphSignature]:
    """Early placement by the full rule, for ExecuTorch's default settings. Rewrites `program`'s graph."""
    return early_placement()(program)


reference_pass.rule = REFERENCE  # type: ignore[attr-defined]
