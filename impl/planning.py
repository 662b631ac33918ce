"""Which name for a written buffer suits which memory planning.

What the output node names as a buffer's new value decides what the planner keeps alive. The placeholder costs nothing,
the `copy_` costs a stale tensor per buffer up to the end of the program; but where outputs get no memory, a placeholder
among them gets none either, and emission fails, while there the `copy_` costs nothing.
"""

from __future__ import annotations

from typing import Any

from copyproof.impl.placement import Naming


def naming_for(memory_planning: Any) -> Naming:
    """What `early_placement(outputs=...)` should name under an ExecuTorch `MemoryPlanningPass`.

    Args:
        memory_planning: the pass; its `alloc_graph_output`, `alloc_mutable_buffers` and `share_mutable_buffers` decide.

    Source: measured with executorch 1.5.1 on every setting that its planner accepts (tests/test_planning.py).
    """
    bare_outputs = not memory_planning.alloc_graph_output
    planned_alone = memory_planning.alloc_mutable_buffers and not memory_planning.share_mutable_buffers
    return "copy_" if bare_outputs and planned_alone else "placeholder"
