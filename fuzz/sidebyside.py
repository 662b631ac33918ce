"""A refuted file in the real runtime, side by side with eager PyTorch: the numbers that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import mutated_inputs, run_eager
from copyproof.fuzz.runtime import RuntimeFailure, run_program
from copyproof.spec.errors import first_line

_CALLS = 3
_SHOWN = 3


def seen(exported: ExportedProgram, pte: bytes, imports: Sequence[str] = ()) -> tuple[str, ...]:
    """What consecutive calls of a file give in the runtime where eager PyTorch gives something else, in sentences.

    The first call takes the example inputs, the later ones random floating-point numbers of the same shapes, and
    positions that count up where the model takes them.

    Args:
        exported: the exported program, with example inputs; eager starts from its state.
        pte: the file.
        imports: modules that register custom kernels.
    """
    if exported.example_inputs is None:
        return ("not run: the model has no example inputs; export it again with torch.export.export",)
    args, kwargs = exported.example_inputs
    if kwargs:
        return ("not run: the example inputs are given by keyword, and the runtime takes them by position",)
    generator = torch.Generator().manual_seed(0)
    calls = [args]
    for k in range(1, _CALLS):
        calls.append(pytree.tree_map(lambda value, k=k: _other(value, k, generator), args))
    try:
        expected = run_eager(exported.module(), calls)
    except Exception:  # whatever the model raises, at positions that it has not for example
        calls = [args] * _CALLS
        try:
            expected = run_eager(exported.module(), calls)
        except Exception as error:
            return (f"not run: the model itself fails on its example inputs ({first_line(error)[:120]})",)
    try:
        actual = run_program(pte, calls, imports, mutated_inputs(exported.graph_signature))
    except RuntimeFailure as failure:
        return (f"in the runtime: {failure}",)
    found = differences(expected, actual, exact=False)
    if not found:
        return (f"{_CALLS} calls in the runtime showed no difference",)
    return tuple(f"in the runtime: {line}" for line in found[:_SHOWN])


def _other(value: Any, call: int, generator: torch.Generator) -> Any:
    """The value in a later call: other floating-point numbers, and a position that counts up."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.numel() == 1:
        return value + call
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return torch.randn(value.shape, generator=generator).to(value.dtype)
    return value
