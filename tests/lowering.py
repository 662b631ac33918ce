"""The corpus in the Edge dialect and as files, and whether a file runs right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram

from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import Call, lower, mutated_inputs, run_eager
from copyproof.fuzz.runtime import RuntimeFailure, run_program
from copyproof.spec.pipeline import at_write_back
from copyproof.verify.corpus import Example
from copyproof.verify.corpus.example import backend_config, calls_of, export, to_edge


@cache
def edge_of(example: Example) -> Any:
    """`example` in the Edge dialect; not to be changed."""
    return to_edge(export(example), example)


@cache
def program_of(example: Example) -> ExportedProgram:
    """The one program of `example` as the write-back pass gets it; not to be changed."""
    (program,) = at_write_back(edge_of(example), backend_config(example)).values()
    return program


def file_of(example: Example, write_back_pass: Any, **changes: Any) -> bytes:
    """The `.pte` of `example`, lowered with a write-back pass (None: the shipped one), its configuration changed."""
    return lower(edge_of(example), write_back_pass, replace(backend_config(example), **changes))


HALF_PRECISION = {"muse_glimmer": 0.05}
"""Models that compute in bfloat16: how far their results may be from eager, relative to the largest one."""


def close(expected: Sequence[Call], actual: Sequence[Call], tolerance: float) -> bool:
    """Whether outputs differ by less than `tolerance` times their largest number."""
    return all(
        torch.allclose(a, b, rtol=0.0, atol=tolerance * float(a.abs().max()))
        for one, other in zip(expected, actual, strict=True)
        for a, b in zip(one.outputs, other.outputs, strict=True)
    )


def runs_right(example: Example, pte: bytes) -> bool:
    """Whether the runtime gives what eager PyTorch gives, over the calls of `example`."""
    mutated = mutated_inputs(program_of(example).graph_signature)
    try:
        actual = run_program(pte, calls_of(example), example.imports, mutated)
    except RuntimeFailure:
        return False
    expected = run_eager(export(example).module(), calls_of(example))
    if example.name in HALF_PRECISION:
        return close(expected, actual, HALF_PRECISION[example.name])
    return not differences(expected, actual, exact=False)
