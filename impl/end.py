"""End placement done right: every write-back at the end of the graph, none lost, none in the wrong order.

The baseline that early placement is compared with: copies between targets keep their order, cycles are broken, and
outputs that alias old contents are cloned, as in the reference pass.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram, ExportGraphSignature

from copyproof.impl.placement import Naming, Placement, WriteBackPass
from copyproof.spec.effects import EXECUTORCH, Profile
from copyproof.spec.rule import REFERENCE


def end_placement(outputs: Naming = "placeholder", profile: Profile = EXECUTORCH) -> WriteBackPass:
    """A pass that places every write-back at the end; arguments and result as of `early_placement`."""

    def place(program: ExportedProgram) -> tuple[torch.fx.GraphModule, ExportGraphSignature]:
        return Placement(program, REFERENCE, outputs, profile, earliest=False).run()

    return place


def end_pass(program: ExportedProgram) -> tuple[torch.fx.GraphModule, ExportGraphSignature]:
    """End placement for ExecuTorch's default settings. Rewrites `program`'s graph."""
    return end_placement()(program)
