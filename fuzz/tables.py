"""What `torch.export` works out anew for every program, kept while many small ones go through it.

`run_decompositions` lists all composite operators that are registered, twice for each program; on a small program that
takes longer than all the rest. The list changes only when somebody registers an operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

import torch.export.decomp_utils
import torch.export.exported_program


@contextmanager
def kept_tables() -> Iterator[None]:
    """Within this context the list of composite operators is made once; register no operator in it."""
    kept = cache(torch.export.exported_program._collect_all_valid_cia_ops)
    with (
        patch.object(torch.export.exported_program, "_collect_all_valid_cia_ops", kept),
        patch.object(torch.export.decomp_utils, "_collect_all_valid_cia_ops", kept),
    ):
        yield
