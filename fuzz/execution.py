"""Running a stateful module call by call, and lowering its Edge program with a write-back pass of choice.

The right answer of a sequence of calls is what eager PyTorch gives (`run_eager`). What a lowered program
gives, as bytes of a `.pte` file (`lower`), is for `copyproof.fuzz.runtime.run_program` to find out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportGraphSignature
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from copyproof.spec.pipeline import copy_of_edge, standing_in

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig

    from copyproof.spec.pipeline import WriteBackPass

Arguments = tuple[Any, ...]
"""The positional arguments of one call: tensors, numbers, and containers of them."""


@dataclass(frozen=True)
class Call:
    """What one call gave.

    Attributes:
        outputs: the user outputs, flattened, each with storage of its own.
        inputs_after: the arguments, flattened, as they were after the call: a mutated user input has its
            new value.
        state: what buffers and parameters held after the call, by qualified name, where that can be looked at.
    """

    outputs: tuple[Any, ...]
    inputs_after: tuple[Any, ...]
    state: Mapping[str, Any] = field(default_factory=dict)


def run_eager(module: torch.nn.Module, calls: Sequence[Arguments], state: bool = False) -> list[Call]:
    """What eager PyTorch gives for consecutive calls; `module` and `calls` are left as they were.

    Args:
        module: the module, or an exported program's `module()`. Its state is the initial state: a `.pte`
            starts from zeros unless it was lowered with initialised buffers, so a fair comparison starts
            there too.
        calls: the arguments of each call; the state carries over from one to the next.
        state: whether to look at buffers and parameters too, after each call.

    Raises:
        whatever the module raises.
    """
    running = deepcopy(module)
    results = []
    for arguments in calls:
        # Copied call by call, since two calls may be given the same tensor.
        given = deepcopy(tuple(arguments))
        with torch.no_grad():
            returned = running(*given)
        held = {**dict(running.named_buffers()), **dict(running.named_parameters())} if state else {}
        results.append(
            Call(detached(returned), detached(given), dict(zip(held, detached(list(held.values())), strict=True)))
        )
    return results


def lower(
    edge: EdgeProgramManager,
    write_back_pass: WriteBackPass | None,
    config: ExecutorchBackendConfig | None = None,
) -> bytes:
    """The `.pte` that `edge` becomes with `write_back_pass` in its pipeline; `edge` is left as it was.

    Args:
        edge: the programs in the Edge dialect.
        write_back_pass: stands where the shipped write-back pass does; None leaves the shipped one there.
        config: how to lower; None takes ExecuTorch's defaults.

    Raises:
        whatever the pass or `to_executorch` raises.
    """
    with standing_in(write_back_pass) if write_back_pass is not None else nullcontext():
        return copy_of_edge(edge).to_executorch(config).buffer


def mutated_inputs(signature: ExportGraphSignature) -> tuple[int, ...]:
    """Positions, in the flattened arguments, of the user inputs that are marked as mutated; in output order."""
    arguments = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    return tuple(arguments.index(name) for name in signature.user_inputs_to_mutate.values())


def detached(values: Any) -> tuple[Any, ...]:
    """The leaves of `values`, each tensor with storage of its own."""
    plain = isinstance(values, (list, tuple)) and all(isinstance(value, torch.Tensor) for value in values)
    leaves = values if plain else pytree.tree_leaves(values)
    return tuple(leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
