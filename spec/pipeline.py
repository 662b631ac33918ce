"""Where in ExecuTorch's pipeline a write-back pass stands, and how to put another pass there.

`EdgeProgramManager.to_executorch` runs a few passes on each Edge program, then calls
`insert_write_back_for_buffers_pass`, then lowers what that returned. This module names that point: `standing_in`
puts a pass there, `at_write_back` takes the programs out just before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram, ExportGraphSignature

    WriteBackPass = Callable[[ExportedProgram], ExportedProgram | tuple[torch.fx.GraphModule, ExportGraphSignature]]


class Stage(Enum):
    """A stage of the pipeline, in order; the value is its name in a verdict."""

    EARLY = "an early pass (before the write-backs)"
    WRITE_BACK = "the write-back pass"
    LATER = "a later pass (after the write-backs)"
    PLAN = "the memory plan"
    FILE = "emission and serialisation"


SHIPPED = "executorch.exir.passes.insert_write_back_for_buffers_pass:insert_write_back_for_buffers_pass"
"""The pass that ExecuTorch ships, named as `--pass` takes it."""

REFERENCE_PASS = "copyproof.impl:reference_pass"
"""What is proved where no pass is named."""


@contextmanager
def standing_in(write_back_pass: WriteBackPass) -> Iterator[None]:
    """Within this context `to_executorch` calls `write_back_pass` where it would call the shipped pass.

    Args:
        write_back_pass: a callable with the shipped pass's contract, `ExportedProgram -> (GraphModule,
            ExportGraphSignature)`; it may rewrite its argument in place, as the shipped pass does. What it returns
            is what the planner sees; one that returns an `ExportedProgram` is accepted too.

    Raises:
        ImportError: executorch is not installed.

    Source: `executorch/exir/program/_program.py`, `EdgeProgramManager.to_executorch` (1.5.1).
    """
    from executorch.exir.program import _program as pipeline

    def adapted(program: ExportedProgram) -> tuple[torch.fx.GraphModule, ExportGraphSignature]:
        graph_module, signature = as_pair(write_back_pass(program))
        # The pipeline goes on with the program's own graph, not with the returned one.
        if graph_module is not program.graph_module:
            program.graph_module.graph = graph_module.graph
            program.graph_module.recompile()
        return program.graph_module, signature

    shipped = pipeline.insert_write_back_for_buffers_pass
    pipeline.insert_write_back_for_buffers_pass = adapted
    try:
        yield
    finally:
        pipeline.insert_write_back_for_buffers_pass = shipped


def as_pair(result: Any) -> tuple[torch.fx.GraphModule, ExportGraphSignature]:
    """What a write-back pass returned, as graph module and signature.

    Raises:
        TypeError: it is neither an ExportedProgram nor a pair of GraphModule and ExportGraphSignature.
    """
    import torch
    from torch.export import ExportedProgram, ExportGraphSignature

    if isinstance(result, ExportedProgram):
        return result.graph_module, result.graph_signature
    if (
        isinstance(result, tuple)
        and len(result) == 2
        and isinstance(result[0], torch.fx.GraphModule)
        and isinstance(result[1], ExportGraphSignature)
    ):
        return result
    raise TypeError(
        f"the pass returned {type(result).__name__}, expected an ExportedProgram or a pair "
        "(GraphModule, ExportGraphSignature); of a class or a factory, name what it makes"
    )


def carriers(given: ExportedProgram, result: Any) -> tuple[ExportedProgram, ...]:
    """The programs whose contents a rewritten graph may run over: the one that the pass was given, which a pipeline
    goes on with whatever is returned, and the one that it returned, if that is another one."""
    from torch.export import ExportedProgram

    return (given, result) if isinstance(result, ExportedProgram) and result is not given else (given,)


def copy_of(program: ExportedProgram) -> ExportedProgram:
    """A deep copy of a program, its nodes named as in the original, with types of its own.

    `deepcopy` alone renames what is named as a Python builtin (an input `input` becomes `input_1`), leaves the
    signature as it is, and shares the fake tensors that are the nodes' types, which a pass may change in place.
    """
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx import GraphModule
    from torch.utils import _pytree as pytree

    copied = deepcopy(program)
    _restore_names(copied, program)
    for module in copied.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            if "val" in node.meta:
                node.meta["val"] = pytree.tree_map_only(FakeTensor, _type_of_its_own, node.meta["val"])
    return copied


def _type_of_its_own(fake: torch.Tensor) -> torch.Tensor:
    import torch

    with torch.no_grad():
        return fake.detach()


def copy_of_edge(edge: Any) -> Any:
    """A deep copy of an `EdgeProgramManager`, the nodes of its programs named as in the original."""
    copied = deepcopy(edge)
    for method, program in copied._edge_programs.items():
        _restore_names(program, edge._edge_programs[method])
    return copied


def _restore_names(copied: ExportedProgram, program: ExportedProgram) -> None:
    for node, original in zip(copied.graph.nodes, program.graph.nodes, strict=True):
        node.name, node.target = original.name, original.target if node.op == "placeholder" else node.target
    copied.graph_module.recompile()


def at_write_back(edge: Any, config: Any = None) -> dict[str, ExportedProgram]:
    """The programs of `edge` as the write-back pass would receive them, method by method.

    Args:
        edge: an `EdgeProgramManager`; it is left as it was.
        config: the `ExecutorchBackendConfig` to lower with (its passes before the write-back run).

    Raises:
        whatever the passes before the write-back raise.
    """
    programs: list[ExportedProgram] = []

    class Reached(Exception):
        pass

    def take(program: ExportedProgram) -> Any:
        programs.append(program)
        raise Reached

    methods = sorted(edge.methods)
    for method in methods:
        one = copy_of_edge(edge)
        one._edge_programs = {method: one._edge_programs[method]}
        with standing_in(take):
            try:
                one.to_executorch(config)
            except Reached:
                continue
        raise RuntimeError(f"to_executorch did not reach the write-back pass for method {method!r}")
    return dict(zip(methods, programs, strict=True))
