"""Delegates: one operation over their operands, in graphs and in files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from copyproof.impl import reference_pass
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.verify import prove_pass
from copyproof.verify.corpus import Example
from copyproof.verify.corpus.delegated_models import DELEGATED_MODELS
from copyproof.verify.program import prove_program
from copyproof.verify.serialized import File

from .known_wrong import right_after_the_source
from .lowering import edge_of, file_of, program_of, runs_right


class _Same(torch.nn.Module):
    """Its new state is the old one, which no uninterpreted proof can know."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(1, 8))
        self.linear = torch.nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        new = torch.fmax(self.h, self.h)
        y = self.linear(x + self.h) + new
        self.h.copy_(new)
        return y


def test_delegate_whose_operands_no_run_shows_to_differ_is_unknown() -> None:
    calls = [(torch.randn(1, 8),)] * 3
    example = Example("same", "test", lambda: (_Same(), calls), partition=True, check_ir=False)
    report = prove_pass(program_of(example), right_after_the_source)
    assert report.verdict is Verdict.UNKNOWN, report
    assert report[Obligation.EFFECTS].verdict is not Verdict.REFUTED, report


@pytest.mark.parametrize("example", DELEGATED_MODELS, ids=lambda e: e.name)
def test_delegated_model_is_proved_down_to_the_file(example: Example) -> None:
    report = prove_program(edge_of(example).exported_program(), file_of(example, reference_pass))
    assert report.verdict is Verdict.PROVED, report
    assert any("buffers that it owns are outside the proof" in line for line in report.approximations)


@pytest.mark.parametrize("example", DELEGATED_MODELS, ids=lambda e: e.name)
def test_copy_that_stands_before_a_delegate_reads_the_old_state_is_seen_in_the_file(example: Example) -> None:
    pte = file_of(example, right_after_the_source)
    expected = Verdict.PROVED if runs_right(example, pte) else Verdict.REFUTED
    assert prove_program(edge_of(example).exported_program(), pte).verdict is expected


def test_delegate_with_another_payload_is_not_proved() -> None:
    example = DELEGATED_MODELS[0]
    other = replace(example, build=lambda: _retrained(example))
    pte = file_of(other, reference_pass)
    report = prove_program(edge_of(example).exported_program(), pte)
    assert report.verdict is Verdict.UNKNOWN, report
    assert "calls a delegate that the model has not" in str(report)


def test_weights_of_delegates_count_for_their_identity() -> None:
    example = DELEGATED_MODELS[0]
    file = File(file_of(example, reference_pass))
    assert file.data, "the partitioner keeps weights as named data"
    before = file.machine("forward")
    file.data = {key: bytes(len(value)) for key, value in file.data.items()}
    assert before.calls != file.machine("forward").calls


def _retrained(example: Example) -> Any:
    module, calls = example.build()
    with torch.no_grad():
        for linear in module.modules():
            if isinstance(linear, torch.nn.Linear):
                linear.weight.mul_(2)
    return module, calls
