"""Files whose sizes are not fixed, over calls of different sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary
from torch import Tensor
from torch.export import Dim

from copyproof.impl import reference_pass
from copyproof.spec.obligations import Verdict
from copyproof.verify import BadInput, prove_program
from copyproof.verify.corpus import Example

from .lowering import edge_of, file_of, runs_right


class _TwoSizes(torch.nn.Module):
    """Two inputs of different lengths with the same upper bound, both viewed in sizes that calls compute."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = self.total * 1.0
        pairs = x.reshape(-1, 2).sum(1)
        self.total.add_(x.sum(0) + y.reshape(-1).sum())
        return pairs, before, torch.cat([x, y])


def _two_sizes() -> Example:
    calls = [(torch.ones(n, 4) * n, torch.ones(m, 4) * m) for n, m in ((3, 6), (8, 2), (1, 5))]
    return Example(
        "two_sizes",
        "test",
        lambda: (_TwoSizes(), calls),
        dynamic_shapes=lambda: ({0: Dim("n", max=8)}, {0: Dim("m", max=8)}),
        check_ir=False,
    )


class _RowByNumber(torch.nn.Module):
    """A row whose number is an element of an input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 4))

    def forward(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        at = position.item()
        torch._check(at >= 0)
        torch._check(at < 8)
        old = self.rows.select(0, at).clone()  # type: ignore[call-overload]
        self.rows.narrow(0, at, 1).copy_(x)  # type: ignore[arg-type]
        return old + 1, self.rows * 2


def _row_by_number() -> Example:
    calls = [(torch.full((1, 4), float(i)), torch.tensor(i)) for i in (3, 3, 0)]
    return Example("row_by_number", "test", lambda: (_RowByNumber(), calls), check_ir=False)


@pytest.mark.parametrize("example", [_two_sizes(), _row_by_number()], ids=lambda e: e.name)
@pytest.mark.parametrize("write_back_pass", [None, reference_pass], ids=["shipped", "reference"])
def test_file_of_sizes_and_numbers_that_calls_compute_is_proved_and_runs_right(
    example: Example, write_back_pass: Any
) -> None:
    pte = file_of(example, write_back_pass)
    assert runs_right(example, pte)
    report = prove_program(edge_of(example).exported_program(), pte)
    assert report.verdict is Verdict.PROVED, report


def test_inputs_of_other_sizes_in_each_other_s_place_are_not_proved() -> None:
    example = _two_sizes()
    file = deserialize_pte_binary(file_of(example, reference_pass))
    plan = file.program.execution_plan[0]
    first, second = plan.inputs
    for instruction in plan.chains[0].instructions:
        args = instruction.instr_args.args
        instruction.instr_args.args = [{first: second, second: first}.get(a, a) for a in args]
    report = prove_program(edge_of(example).exported_program(), bytes(serialize_pte_binary(file)))
    assert report.verdict is Verdict.REFUTED, report


def test_size_without_an_upper_bound_is_bad_input() -> None:
    example = Example(
        "unbounded",
        "test",
        lambda: (_TwoSizes(), [(torch.ones(3, 4), torch.ones(6, 4))]),
        dynamic_shapes=lambda: ({0: Dim("n", max=8)}, {0: Dim("m", max=8)}),
        check_ir=False,
    )
    program = edge_of(example).exported_program()
    for symbol in list(program.range_constraints):
        del program.range_constraints[symbol]
    with pytest.raises(BadInput, match="has no upper bound, which ExecuTorch needs"):
        prove_program(program, file_of(_two_sizes(), None))
