"""The corpus builds, reaches the write-back pass, and is what its tables say it is."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.utils import _pytree as pytree

from copyproof.spec.pipeline import at_write_back
from copyproof.verify.corpus import CASES, MODELS, Example, find
from copyproof.verify.corpus.cases import DOES_NOT_REACH, NOT_IN_RUNTIME, PIPELINE_WRONG, SHIPPED_WRONG
from copyproof.verify.corpus.delegated_models import DELEGATED_MODELS
from copyproof.verify.corpus.example import WRITTEN_HERE, backend_config, calls_of, export, to_edge

from .lowering import edge_of

EVERY = CASES + MODELS
QUICK = [example for example in EVERY if not example.slow]
REACHING = [example for example in CASES if example.name not in DOES_NOT_REACH]
AT_NIGHT = [
    example if example.name == "unet_skip_state" else pytest.param(example, marks=pytest.mark.slow)
    for example in MODELS
]


def targets_at_write_back(example: Example) -> int:
    """How many targets the one program of `example` has where the write-back pass gets it."""
    (program,) = at_write_back(edge_of(example), backend_config(example)).values()
    signature = program.graph_signature
    return len(signature.buffers_to_mutate) + len(signature.user_inputs_to_mutate)


def eager_outputs(example: Example) -> list[list[torch.Tensor]]:
    """What eager returns over the consecutive calls, from the state that `export` leaves."""
    module = deepcopy(export(example)).module()
    return [pytree.tree_leaves(module(*deepcopy(arguments))) for arguments in calls_of(example)]


def runtime_outputs(example: Example) -> list[list[torch.Tensor]]:
    """What the runtime returns over the consecutive calls, with the shipped pass."""
    from executorch.runtime import Runtime

    lowered = deepcopy(edge_of(example)).to_executorch(backend_config(example))
    method = Runtime.get().load_program(lowered.buffer).load_method("forward")
    assert method is not None
    return [list(method.execute(deepcopy(arguments))) for arguments in calls_of(example)]


def named(example: Example) -> str:
    return example.name


def test_names_are_unique() -> None:
    names = [example.name for example in EVERY]
    assert len(names) == len(set(names))


def test_there_are_14_models_of_which_9_come_from_the_wheel() -> None:
    from_wheel = [example for example in MODELS if example.origin.startswith("executorch.examples.models.")]
    assert len(MODELS) >= 14
    assert len(from_wheel) >= 9


def test_every_case_cites_a_public_report_or_says_that_it_has_none() -> None:
    assert all(example.origin.startswith("https://github.com/") or example.origin == WRITTEN_HERE for example in CASES)


def test_tables_speak_of_examples_that_exist() -> None:
    names = {example.name for example in EVERY}
    assert {*DOES_NOT_REACH, *NOT_IN_RUNTIME, *PIPELINE_WRONG, *SHIPPED_WRONG} <= names


def test_find_returns_the_example_of_that_name() -> None:
    assert find("swap_pair").name == "swap_pair"


def test_find_lists_names_near_an_unknown_one() -> None:
    with pytest.raises(KeyError, match="llama_2_layers"):
        find("llama_2_layer")


@pytest.mark.parametrize("example", QUICK, ids=named)
def test_there_are_three_calls_of_one_signature(example: Example) -> None:
    calls = calls_of(example)
    assert len(calls) >= 3
    assert len({len(arguments) for arguments in calls}) == 1
    for arguments in zip(*calls, strict=True):
        assert len({(argument.dtype, argument.dim()) for argument in arguments}) == 1
        if example.dynamic_shapes is None:
            assert len({argument.shape for argument in arguments}) == 1


def test_calls_are_the_same_each_time() -> None:
    example = find("gru_in_buffers")
    for first, second in zip(calls_of(example), calls_of(example), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_export_zeroes_a_mutated_buffer_that_is_not_initialised() -> None:
    exported = export(find("batchnorm_train"))
    assert not exported.state_dict["bn.running_mean"].any()


def test_export_keeps_a_buffer_that_is_initialised() -> None:
    exported = export(find("init_nonzero_with_pass"))
    assert torch.equal(exported.state_dict["a"], torch.arange(3.0))


@pytest.mark.parametrize("example", REACHING, ids=named)
def test_case_reaches_the_write_back_pass_with_a_target(example: Example) -> None:
    assert targets_at_write_back(example) >= 1


@pytest.mark.parametrize("name", DOES_NOT_REACH)
def test_case_that_does_not_reach_the_pass_fails_as_said(name: str) -> None:
    start, _, reason = DOES_NOT_REACH[name].partition("; ")
    exported = export(find(name))
    with pytest.raises(Exception) as caught:
        to_edge(exported, find(name))
    assert f"{caught.type.__name__}: {caught.value}".startswith(start)
    assert reason


@pytest.mark.parametrize("name", NOT_IN_RUNTIME)
def test_case_that_is_not_in_the_runtime_fails_after_the_pass(name: str) -> None:
    with pytest.raises(Exception, match=r"Unsupported control flow operator|Failed to load method"):
        runtime_outputs(find(name))


@pytest.mark.parametrize("name", [*SHIPPED_WRONG, *PIPELINE_WRONG])
def test_shipped_pipeline_gives_the_wrong_results_it_is_said_to_give(name: str) -> None:
    eager, runtime = eager_outputs(find(name)), runtime_outputs(find(name))
    assert not all(torch.allclose(a, b) for a, b in zip(eager[-1], runtime[-1], strict=True))


@pytest.mark.parametrize("example", AT_NIGHT, ids=named)
def test_model_reaches_the_write_back_pass_with_a_target(example: Example) -> None:
    assert targets_at_write_back(example) >= 1


@pytest.mark.parametrize("example", DELEGATED_MODELS, ids=named)
def test_delegated_model_has_two_or_more_delegates_and_leaves_some_operators_outside(example: Example) -> None:
    graph = edge_of(example).exported_program().graph
    assert len(graph.find_nodes(op="call_function", target=executorch_call_delegate)) >= 2
    assert any(isinstance(node.target, EdgeOpOverload) for node in graph.nodes)


@pytest.mark.parametrize("name", ["delegated_gru", "delegated_convolutions"])
def test_mutated_buffers_are_operands_of_delegates(name: str) -> None:
    program = edge_of(find(name)).exported_program()
    calls = program.graph.find_nodes(op="call_function", target=executorch_call_delegate)
    read = {operand.name for call in calls for operand in call.all_input_nodes}
    buffers = program.graph_signature.inputs_to_buffers
    assert set(program.graph_signature.buffers_to_mutate.values()) <= {buffers.get(name) for name in read}
