"""Kernels of the runtime refuse, or go wrong over, tensors whose dimensions lie in memory in an unusual order; and one
computes something else than PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge

from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import lower, run_eager
from copyproof.fuzz.runtime import RuntimeFailure, run_program
from copyproof.spec.obligations import Verdict
from copyproof.verify import Report, prove_lowering

_LAST = torch.arange(16.0).reshape(1, 2, 2, 4).contiguous(memory_format=torch.channels_last)
_USUAL = torch.arange(16.0).reshape(1, 2, 2, 4) + 1
_NARROW = torch.arange(4.0).reshape(1, 1, 2, 2)


_WEIGHT = torch.ones(4, 3, 3, 3).contiguous(memory_format=torch.channels_last)


class _Counting(torch.nn.Module):
    """A function of two inputs, beside a counter."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        return self.function(x, y), self.count + 0


def _verdict_and_whether_it_runs(function: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> tuple[Verdict, bool]:
    report, runs = _report_and_whether_it_runs(function, given)
    return report.verdict, runs


def _report_and_whether_it_runs(function: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> tuple[Report, bool]:
    module = _Counting(function)
    edge = to_edge(torch.export.export(module, given))
    (report,) = prove_lowering(edge).values()
    calls = [given, given]
    try:
        actual = run_program(lower(edge, None, ExecutorchBackendConfig()), calls)
    except RuntimeFailure:
        return report, False
    return report, not differences(run_eager(module, calls), actual, exact=True)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda x, y: x + y, (_LAST, _USUAL)),
        (lambda x, y: y + x, (_LAST, _USUAL)),
        (lambda x, y: torch.where(x > y, x, y), (_LAST, _USUAL)),
        (lambda x, y: x + torch.ones(4), (_LAST, _LAST)),
        (lambda x, y: torch.cat([x, y], 1), (_LAST, _LAST)),
        (lambda x, y: x.flip(1), (_LAST, _LAST)),
        (lambda x, y: x.cumsum(1), (_LAST, _LAST)),
        (lambda x, y: torch.nn.functional.pad(x, (1, 1)), (_LAST, _LAST)),
        (lambda x, y: x[:, 1] * 2, (_LAST, _LAST)),
        (lambda x, y: torch.nn.functional.conv2d(x, _WEIGHT), (torch.ones(1, 3, 6, 6), _USUAL)),
        (lambda x, y: x.double().log_softmax(0), (torch.ones(4), torch.ones(4))),
    ],
)
def test_kernel_that_does_not_take_an_order_of_dimensions_or_a_type_leaves_no_proof(
    function: Callable[..., Any], given: tuple[torch.Tensor, ...]
) -> None:
    verdict, runs = _verdict_and_whether_it_runs(function, given)
    assert verdict is Verdict.UNKNOWN and not runs, (verdict, runs)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda x, y: x + y, (_NARROW.contiguous(memory_format=torch.channels_last), _NARROW)),
        (lambda x, y: x + y, (_LAST, _LAST)),
        (lambda x, y: torch.where(x > y, x, y).relu(), (_LAST, _LAST)),
        (lambda x, y: x.clone(memory_format=torch.contiguous_format) + y, (_LAST, _USUAL)),
        (lambda x, y: x + y.contiguous(memory_format=torch.channels_last), (_LAST, _USUAL)),
        (lambda x, y: torch.nn.functional.conv2d(x, torch.ones(2, 2, 1, 1)), (_LAST, _LAST)),
        (lambda x, y: torch.nn.functional.interpolate(x, scale_factor=2.0), (_LAST, _LAST)),
    ],
)
def test_kernel_that_takes_an_order_of_dimensions_is_proved_and_runs(
    function: Callable[..., Any], given: tuple[torch.Tensor, ...]
) -> None:
    assert _verdict_and_whether_it_runs(function, given) == (Verdict.PROVED, True)


@pytest.mark.parametrize("integers", [True, False])
def test_remainder_of_integers_is_proved_for_numbers_of_one_sign_by_name(integers: bool) -> None:
    """The runtime computes another one than PyTorch for others."""
    given = torch.arange(-4, 4) if integers else torch.arange(-4.0, 4.0)
    report, runs = _report_and_whether_it_runs(lambda x, y: x % y, (given, given * 0 + 3))
    assert any("remainders of integers" in text for text in report.approximations) == integers
    assert runs != integers


def test_product_over_no_elements_is_not_proved() -> None:
    """The runtime's kernel leaves whatever was in the memory of its result."""
    verdict, _ = _verdict_and_whether_it_runs(lambda x, y: x @ y, (torch.ones(3, 0), torch.ones(0, 3)))
    assert verdict is Verdict.UNKNOWN


class _Cast(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.zeros(3, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b.copy_(x) * 2


def test_cast_that_a_decomposition_may_have_lost_is_named() -> None:
    edge = to_edge(torch.export.export(_Cast(), (torch.tensor([-1.7, 2.5, 3.0]),)))
    assert any("has lost the cast" in text for text in prove_lowering(edge)["forward"].approximations)


class _Last(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("st", torch.zeros(1, 2, 2, 4).contiguous(memory_format=torch.channels_last))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.st.copy_(x)
        return x + 1


def test_state_of_another_order_than_what_is_written_back_is_not_proved() -> None:
    edge = to_edge(torch.export.export(_Last(), (_USUAL,)))
    assert prove_lowering(edge)["forward"].verdict is not Verdict.PROVED
