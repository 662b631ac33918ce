"""Stateful models (`MODELS`) and small hazard cases (`CASES`) to prove, lower and run passes on.

Open `example.py` first: it says what an Example is, and how to export and lower one. `wheel_models.py` has
models from the executorch wheel, `own_models.py` has ones written by hand, `delegated_models.py` ones that
XNNPACK runs in part. `cases.py` gathers the hazard cases (from `copy_cases.py`, `alias_cases.py`,
`branch_cases.py`) and says which of them ExecuTorch refuses or gets wrong.
"""

from __future__ import annotations

import difflib

from .cases import CASES
from .delegated_models import DELEGATED_MODELS
from .example import Example
from .own_models import OWN_MODELS
from .wheel_models import WHEEL_MODELS

MODELS: tuple[Example, ...] = WHEEL_MODELS + OWN_MODELS + DELEGATED_MODELS
"""Whole models, in small sizes."""

__all__ = ["CASES", "MODELS", "Example", "find"]


def find(name: str) -> Example:
    """The example of that name.

    Raises:
        KeyError: there is none; the message lists names that are near.
    """
    known = {example.name: example for example in MODELS + CASES}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=5, cutoff=0.4)
    raise KeyError(f"no example {name!r} in the corpus; names near it: {', '.join(near) or 'none'}")
