"""One stateful module with what is needed to export it, lower it and call it several times.

An `Example` is data; the functions here take it down ExecuTorch's pipeline: `export`, then `to_edge`, then
`EdgeProgramManager.to_executorch` with `backend_config`. The right answer of an example is what eager PyTorch
returns over its consecutive calls, with the state that `export` leaves in the exported program.
"""

from __future__ import annotations

import importlib
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig
    from torch.export import ExportedProgram

WRITTEN_HERE = "written for this corpus"
"""The origin of an example that no report and no package has."""

Calls = list[tuple["torch.Tensor", ...]]
"""The argument tuples of consecutive calls."""


@dataclass(frozen=True)
class Example:
    """A stateful module, its consecutive calls, and how to lower it.

    Attributes:
        name: unique in the corpus.
        origin: where the code comes from: the public report whose shape it has, the module of a package, or
            WRITTEN_HERE.
        build: makes the module and the argument tuples of at least three consecutive calls.
        hazard: what makes it worth having, in a few words.
        strict: how `torch.export.export` captures it: by bytecode analysis, or (False) by running it.
        dynamic_shapes: makes the `dynamic_shapes` of the export; None where all sizes are fixed.
        decompose: operators that `export` takes apart, since ExecuTorch has no kernel for them.
        preserve: operators that `to_edge` does not decompose (`aten.linear.default`).
        check_ir: whether `to_edge` checks the Edge dialect's rules.
        partition: whether `to_edge` delegates what XNNPACK can run to it.
        initialised: names of the mutated buffers that keep their initial contents; all others are zeroed.
        named: whether the file names its mutable buffers.
        slow: takes minutes rather than seconds.
        imports: modules that register the custom operators, imported before export and before running.
    """

    name: str
    origin: str
    build: Callable[[], tuple[torch.nn.Module, Calls]]
    hazard: str = ""
    strict: bool = False
    dynamic_shapes: Callable[[], Any] | None = None
    decompose: tuple[str, ...] = ()
    preserve: tuple[str, ...] = ()
    check_ir: bool = True
    partition: bool = False
    initialised: tuple[str, ...] = ()
    named: bool = True
    slow: bool = False
    imports: tuple[str, ...] = ()


def calls_of(example: Example) -> Calls:
    """The argument tuples of the consecutive calls of `example`, the same each time."""
    return _built(example)[1]


def export(example: Example) -> ExportedProgram:
    """The exported program of `example`, the same each time.

    Mutated buffers that `example.initialised` does not name are set to zero, as ExecuTorch's runtime does.

    Raises:
        whatever building the module or `torch.export.export` raises.
    """
    import torch
    from torch._decomp import get_decompositions
    from torch.export import default_decompositions

    module, calls = _built(example)
    shapes = example.dynamic_shapes() if example.dynamic_shapes else None
    with torch.no_grad():
        exported = torch.export.export(module, calls[0], dynamic_shapes=shapes, strict=example.strict)
        for name in exported.graph_signature.buffers_to_mutate.values():
            if name not in example.initialised:
                held = exported.state_dict if name in exported.state_dict else exported.constants
                held[name] = torch.zeros_like(held[name])
    if example.decompose:
        table = default_decompositions()
        table.update(get_decompositions(_operators(example.decompose)))
        exported = exported.run_decompositions(table)
    return exported


def to_edge(exported: ExportedProgram, example: Example) -> EdgeProgramManager:
    """`exported` in the Edge dialect, with the options that `example` asks for; `exported` is left as it was.

    Raises:
        whatever `executorch.exir.to_edge` or, with `partition`, `to_edge_transform_and_lower` raises.
    """
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from executorch.exir import to_edge as exir_to_edge

    options = EdgeCompileConfig(_check_ir_validity=example.check_ir, preserve_ops=_operators(example.preserve))
    if example.partition:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        return to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()], compile_config=options)
    return exir_to_edge(exported, compile_config=options)


def backend_config(example: Example) -> ExecutorchBackendConfig:
    """The configuration that lowers `example`: named mutable buffers, if it has them named, and the initial state it
    asks for."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    # The pass looks for the placeholder's name, which torch.export derives from the buffer's in this way.
    placeholders = ["b_" + re.sub(r"\W", "_", name).lower() for name in example.initialised]
    passes = [InitializedMutableBufferPass(placeholders)] if placeholders else []
    return ExecutorchBackendConfig(passes=passes, emit_mutable_buffer_names=example.named)


def _built(example: Example) -> tuple[torch.nn.Module, Calls]:
    import torch

    for module_name in example.imports:
        importlib.import_module(module_name)
    torch.manual_seed(0)
    module, calls = example.build()
    return module, calls


def _operators(names: tuple[str, ...]) -> list[Any]:
    import torch

    return [operator.attrgetter(name)(torch.ops) for name in names]
