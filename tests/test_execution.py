"""Eager PyTorch and ExecuTorch's runtime run the same calls, and what differs is found and told."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import Call, lower, mutated_inputs, run_eager
from copyproof.fuzz.runtime import RuntimeFailure, run_program

nan = float("nan")


class Accumulator(torch.nn.Module):
    """Adds its first input to a buffer, and the sum to its second input."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor, carry: torch.Tensor) -> torch.Tensor:
        before = self.total * 2.0
        self.total.add_(x)
        carry.add_(self.total)
        return before


CALLS = [(torch.tensor([1.0, float(n)]), torch.full((2,), 10.0 * n)) for n in range(3)]
INPUTS_MUTATED = (1,)


@cache
def edge() -> Any:
    """The accumulator in the Edge dialect (needs torch.export and executorch); not to be changed."""
    from executorch.exir import to_edge

    return to_edge(torch.export.export(Accumulator(), CALLS[0]))


@cache
def shipped() -> bytes:
    return lower(edge(), None)


def without_memory_for_buffers() -> bytes:
    """A program whose buffers the caller must provide, which Python cannot: the runtime writes through null."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass

    planning = MemoryPlanningPass(alloc_mutable_buffers=False)
    config = ExecutorchBackendConfig(memory_planning_pass=planning, emit_mutable_buffer_names=True)
    return lower(edge(), None, config)


def gave(*outputs: Any) -> list[Call]:
    """One call with these outputs and no inputs."""
    return [Call(outputs, ())]


def test_eager_state_carries_across_calls() -> None:
    outputs = [call.outputs[0].tolist() for call in run_eager(Accumulator(), CALLS)]
    assert outputs == [[0.0, 0.0], [2.0, 0.0], [4.0, 2.0]]


def test_eager_shows_the_new_value_of_a_mutated_input() -> None:
    after = [call.inputs_after[1].tolist() for call in run_eager(Accumulator(), CALLS)]
    assert after == [[1.0, 0.0], [12.0, 11.0], [23.0, 23.0]]


def test_eager_leaves_the_module_and_the_arguments_as_they_were() -> None:
    module, argument = Accumulator(), torch.ones(2)
    run_eager(module, [(argument, argument), (argument, argument)])
    assert module.total.tolist() == [0.0, 0.0]
    assert argument.tolist() == [1.0, 1.0]


def test_eager_outputs_have_storage_of_their_own() -> None:
    class Leaks(torch.nn.Module):
        b: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("b", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"state": self.b.add_(x)}

    results = run_eager(Leaks(), [(torch.ones(1),), (torch.ones(1),)])
    assert [call.outputs[0].item() for call in results] == [1.0, 2.0]


def test_the_signature_tells_which_inputs_are_mutated() -> None:
    assert mutated_inputs(edge().exported_program().graph_signature) == INPUTS_MUTATED


def test_the_runtime_agrees_with_eager() -> None:
    actual = run_program(shipped(), CALLS, mutated=INPUTS_MUTATED)
    assert differences(run_eager(Accumulator(), CALLS), actual) == []


def test_the_new_values_of_mutated_inputs_lead_the_outputs_of_the_runtime() -> None:
    (call,) = run_program(shipped(), CALLS[1:2])
    assert [output.tolist() for output in call.outputs] == [[11.0, 11.0], [0.0, 0.0]]
    assert call.inputs_after[1].tolist() == [10.0, 10.0]


def test_the_runtime_agrees_with_eager_where_the_caller_owns_inputs_and_outputs() -> None:
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass

    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    pte = lower(edge(), None, ExecutorchBackendConfig(memory_planning_pass=planning))
    assert differences(run_eager(Accumulator(), CALLS), run_program(pte, CALLS, mutated=INPUTS_MUTATED)) == []
    caller_sees = [call.inputs_after[1].tolist() for call in run_program(pte, CALLS)]
    assert caller_sees == [[1.0, 0.0], [12.0, 11.0], [23.0, 23.0]]


def test_each_run_starts_from_the_initial_state() -> None:
    assert differences(run_program(shipped(), CALLS), run_program(shipped(), CALLS)) == []


def test_lower_puts_the_given_pass_in_the_pipeline() -> None:
    seen = []

    def refusing(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        seen.append(program)
        raise ArithmeticError("the pass was reached")

    with pytest.raises(ArithmeticError, match="the pass was reached"):
        lower(edge(), refusing)
    assert len(seen) == 1
    assert lower(edge(), None) == shipped()


def test_a_program_that_does_not_load_is_a_failure_and_the_next_one_still_runs() -> None:
    with pytest.raises(RuntimeFailure, match="while loading the program"):
        run_program(b"not a program", CALLS)
    assert len(run_program(shipped(), CALLS)) == 3


def test_a_call_with_too_few_inputs_is_a_failure() -> None:
    with pytest.raises(RuntimeFailure, match="call 1 has 1 inputs, expected 2"):
        run_program(shipped(), [CALLS[0], (torch.ones(2),)])
    assert len(run_program(shipped(), CALLS)) == 3


def test_a_call_that_the_runtime_refuses_is_a_failure_that_says_which() -> None:
    with pytest.raises(RuntimeFailure, match="while running call 1: "):
        run_program(shipped(), [CALLS[0], (torch.ones(3), torch.ones(3))])
    assert len(run_program(shipped(), CALLS)) == 3


def test_a_runtime_that_dies_is_a_failure_and_the_next_program_still_runs() -> None:
    with pytest.raises(RuntimeFailure, match="the runtime died with SIGSEGV while running call 0"):
        run_program(without_memory_for_buffers(), CALLS)
    assert len(run_program(shipped(), CALLS)) == 3


def test_a_runtime_that_does_not_answer_in_time_is_a_failure_and_the_next_program_still_runs() -> None:
    with pytest.raises(RuntimeFailure, match="did not answer within 0 s"):
        run_program(shipped(), CALLS, seconds=0)
    assert len(run_program(shipped(), CALLS)) == 3


def test_an_import_that_fails_is_a_failure_that_names_the_module() -> None:
    with pytest.raises(RuntimeFailure, match="while importing no_such_kernels"):
        run_program(shipped(), CALLS, imports=["no_such_kernels"])


def test_a_program_without_the_outputs_of_mutated_inputs_is_a_failure() -> None:
    with pytest.raises(RuntimeFailure, match="returned 2 outputs, expected the new values of 3"):
        run_program(shipped(), CALLS, mutated=(0, 1, 2))


def test_equal_numbers_do_not_differ_and_nan_equals_nan() -> None:
    assert differences(gave(torch.tensor([1.0, nan]), 3, nan), gave(torch.tensor([1.0, nan]), 3, nan)) == []


def test_zeros_of_both_signs_are_equal() -> None:
    assert differences(gave(torch.tensor([0.0])), gave(torch.tensor([-0.0]))) == []


def test_a_nan_differs_from_a_number() -> None:
    for exact in (True, False):
        assert differences(gave(torch.tensor([1.0, 2.0])), gave(torch.tensor([1.0, nan])), exact) == [
            "call 0, output 0, element [1]: expected 2.0, got nan"
        ]


def test_a_difference_names_the_call_the_output_and_the_numbers() -> None:
    same = gave(torch.zeros(1))
    expected = same + gave(torch.zeros(1), torch.tensor([[1, 2], [3, 4]]))
    actual = same + gave(torch.zeros(1), torch.tensor([[1, 2], [5, 6]]))
    assert differences(expected, actual) == ["call 1, output 1, element [1, 0] and 1 more: expected 3, got 5"]


def test_shapes_and_types_differ_though_the_numbers_agree() -> None:
    assert differences(gave(torch.zeros(2)), gave(torch.zeros(1, 2))) == [
        "call 0, output 0: expected float32[2], got float32[1, 2]"
    ]
    assert differences(gave(torch.zeros(2)), gave(torch.zeros(2, dtype=torch.int64))) == [
        "call 0, output 0: expected float32[2], got int64[2]"
    ]
    assert differences(gave(torch.tensor(1)), gave(1)) == ["call 0, output 0: expected int64[], got 1"]
    assert differences(gave(1), gave(True)) == ["call 0, output 0: expected 1, got True"]


def test_missing_outputs_and_calls_are_differences() -> None:
    one, two = gave(torch.zeros(1)), gave(torch.zeros(1), torch.zeros(1))
    assert differences(two, one) == ["call 0, output: expected 2 values, got 1"]
    assert differences(one + one, one) == ["expected 2 calls, got 1"]


def test_a_mutated_input_that_differs_is_a_difference() -> None:
    expected, actual = [Call((), (torch.ones(1),))], [Call((), (torch.zeros(1),))]
    assert differences(expected, actual) == ["call 0, input after the call 0, element [0]: expected 1.0, got 0.0"]


def test_rounding_is_a_difference_only_if_exact() -> None:
    expected, actual = gave(torch.tensor(1.0)), gave(torch.tensor(1.0 + 1e-6))
    assert len(differences(expected, actual)) == 1
    assert differences(expected, actual, exact=False) == []


def test_integers_must_be_equal_even_if_not_exact() -> None:
    assert differences(gave(torch.tensor(10**6)), gave(torch.tensor(10**6 + 1)), exact=False) == [
        "call 0, output 0: expected 1000000, got 1000001"
    ]


def test_the_dimensions_of_empty_tensors_still_count() -> None:
    assert differences(gave(torch.zeros(0, 2)), gave(torch.zeros(0, 2))) == []
    assert len(differences(gave(torch.zeros(0, 2)), gave(torch.zeros(0, 3)))) == 1
