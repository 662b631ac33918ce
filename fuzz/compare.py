"""Where two sequences of calls differ, in sentences.

Moving a copy changes no arithmetic, so two lowerings of one program must agree exactly: equal numbers, with
two NaNs equal, and zeros of both signs equal (as `torch.equal` has it). Eager PyTorch and the runtime have
different kernels; between them, numbers may differ by a tolerance (`exact=False`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from copyproof.fuzz.execution import Call

RTOL = {torch.float16: 1e-2, torch.bfloat16: 2e-2, torch.float32: 1e-4, torch.float64: 1e-7}
"""Relative tolerance for kernels, by type; other types, and integers above all, must be equal."""

ATOL = {torch.float16: 1e-3, torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-8}
"""Absolute tolerance for kernels, by type."""


def differences(expected: Sequence[Call], actual: Sequence[Call], exact: bool = True) -> list[str]:
    """Where `actual` differs from `expected`; empty if nowhere.

    Args:
        expected: what the calls should have given.
        actual: what they gave.
        exact: whether numbers must be equal, or may differ within `RTOL` and `ATOL`.

    Returns:
        One sentence for each value that differs: the call, which value of it, expected and actual numbers. State is
        compared where both looked at it.
    """
    found = []
    if len(expected) != len(actual):
        found.append(f"expected {len(expected)} calls, got {len(actual)}")
    for index, (wanted, got) in enumerate(zip(expected, actual, strict=False)):
        found += [f"call {index}, {text}" for text in _sequence("output", wanted.outputs, got.outputs, exact)]
        inputs = _sequence("input after the call", wanted.inputs_after, got.inputs_after, exact)
        found += [f"call {index}, {text}" for text in inputs]
        for name in wanted.state:
            if name in got.state and (text := _value(wanted.state[name], got.state[name], exact)):
                found.append(f"call {index}, state {name}{text}")
    return found


def _sequence(what: str, expected: Sequence[Any], actual: Sequence[Any], exact: bool) -> Iterator[str]:
    if len(expected) != len(actual):
        yield f"{what}: expected {len(expected)} values, got {len(actual)}"
    for index, (wanted, got) in enumerate(zip(expected, actual, strict=False)):
        difference = _value(wanted, got, exact)
        if difference:
            yield f"{what} {index}{difference}"


def _value(expected: Any, actual: Any, exact: bool) -> str | None:
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        return _tensor(expected, actual, exact)
    if isinstance(expected, torch.Tensor) or isinstance(actual, torch.Tensor):
        return f": expected {_kind(expected)}, got {_kind(actual)}"
    if type(expected) is not type(actual):
        return f": expected {expected!r}, got {actual!r}"
    if isinstance(expected, float):
        return _tensor(torch.tensor(expected, dtype=torch.float64), torch.tensor(actual, dtype=torch.float64), exact)
    return None if expected == actual else f": expected {expected!r}, got {actual!r}"


def _tensor(expected: torch.Tensor, actual: torch.Tensor, exact: bool) -> str | None:
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return f": expected {_kind(expected)}, got {_kind(actual)}"
    if torch.equal(expected, actual):
        return None
    rtol, atol = (0.0, 0.0) if exact else (RTOL.get(expected.dtype, 0.0), ATOL.get(expected.dtype, 0.0))
    if rtol == atol == 0.0:
        same = (expected == actual) | (expected.isnan() & actual.isnan())
    else:
        same = torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    if bool(same.all()):
        return None
    wrong = (~same).nonzero()
    first = tuple(wrong[0].tolist())
    others = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    place = f", element {list(first)}{others}" if first else ""
    return f"{place}: expected {expected[first].item()!r}, got {actual[first].item()!r}"


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)
