"""The reference implementation: early placement of write-backs, and end placement done right.

Open `reference.py` first, then `placement.py`; `aliasing.py` is the analysis, `planning.py` what
suits which planner, `insertion.py` the graph surgery.
"""

from copyproof.impl.end import end_pass, end_placement
from copyproof.impl.planning import naming_for
from copyproof.impl.reference import early_placement, reference_pass

__all__ = ["early_placement", "end_pass", "end_placement", "naming_for", "reference_pass"]
