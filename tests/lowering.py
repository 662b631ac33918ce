"""The corpus in the Edge dialect, lowered once for all tests of a run."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch.export import ExportedProgram

from copyproof.spec.pipeline import at_write_back
from copyproof.verify.corpus import Example
from copyproof.verify.corpus.example import backend_config, export, to_edge


@cache
def edge_of(example: Example) -> Any:
    """`example` in the Edge dialect; not to be changed."""
    return to_edge(export(example), example)


@cache
def program_of(example: Example) -> ExportedProgram:
    """The one program of `example` as the write-back pass gets it; not to be changed."""
    (program,) = at_write_back(edge_of(example), backend_config(example)).values()
    return program
