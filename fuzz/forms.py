"""A program's graphs as forms that run: the functional graph, and the rewritten graph over real memory.

Both start from what the program holds, and carry the state from call to call as their meaning says: the functional
graph's targets are assigned after its last step, all at once; the rewritten graph writes as it goes, what the lowering
turns into a view is one, and outputs are read after the last step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Interpreter, Node

from copyproof.fuzz.execution import Arguments, Call, detached
from copyproof.spec.effects import EXECUTORCH, Profile
from copyproof.spec.graph import is_lowered_view, lowered_base
from copyproof.spec.signature import held, mutated_placeholder


def run_functional(
    program: ExportedProgram, calls: Sequence[Arguments], start: Mapping[str, Any] | None = None
) -> list[Call]:
    """What the functional meaning of a program gives for consecutive calls.

    Args:
        program: the program; left as it was.
        calls: the arguments of each call; left as they were.
        start: what some buffers start with instead of what the program holds, by placeholder.

    Raises:
        whatever an operator raises.
    """
    memory = _memory(program, start)
    mutations = [mutated_placeholder(spec, program.graph_signature) for spec in program.graph_signature.output_specs]
    results = []
    for arguments in calls:
        given = _given(program.graph_signature, arguments)
        with torch.no_grad():
            returned = Interpreter(program.graph_module).run(*_in_order(program.graph_signature, {**memory, **given}))
        outputs = []
        # Copied before anything is assigned, since a new value may be an old one's own tensor.
        for target, value in zip(mutations, detached(returned), strict=True):
            if target is None:
                outputs.append(value)
            else:
                into = given if target in given else memory
                into[target] = value.to(into[target].dtype).expand(into[target].shape).clone()
        results.append(Call(tuple(outputs), tuple(given.values()), _state(program, memory)))
    return results


def run_rewritten(
    original: ExportedProgram,
    graph_module: GraphModule,
    signature: ExportGraphSignature,
    calls: Sequence[Arguments],
    start: Mapping[str, Any] | None = None,
    profile: Profile = EXECUTORCH,
) -> list[Call]:
    """What a rewritten graph gives for consecutive calls, over memory that it really writes.

    Args:
        original: the program that it was made of, for what it holds; left as it was.
        graph_module, signature: the rewritten graph.
        calls: the arguments of each call.
        start: what some buffers start with instead of what the program holds, by placeholder.
        profile: what the lowering turns into views.

    Raises:
        whatever an operator raises.
    """
    memory = _memory(original, start)
    targets = [mutated_placeholder(spec, original.graph_signature) for spec in signature.output_specs]
    results = []
    for arguments in calls:
        given = _given(original.graph_signature, arguments)
        inputs = _in_order(original.graph_signature, {**memory, **given})
        with torch.no_grad():
            returned = OverMemory(graph_module, profile).run(*inputs, enable_io_processing=False)
        outputs = [value for value, target in zip(returned, targets, strict=True) if target is None]
        # The runtime hands back what the signature names as a mutated input's new value, whatever the input holds.
        named = {t: value for value, t in zip(returned, targets, strict=True) if t in given}
        inputs_after = detached(list({**given, **named}.values()))
        results.append(Call(detached(outputs), inputs_after, _state(original, memory)))
    return results


class OverMemory(Interpreter):
    """Runs a graph over its inputs' own memory, with lowered views as views."""

    def __init__(self, graph_module: GraphModule, profile: Profile) -> None:
        # Everything is kept to the end: outputs are read there.
        super().__init__(graph_module, garbage_collect_values=False)
        self._profile = profile
        self._returned = set(graph_module.graph.output_node().all_input_nodes)

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if is_lowered_view(n, self._profile, self._returned):
            shape = args[1] if len(args) > 1 else kwargs["size"]
            return self.env[lowered_base(n, self._profile)].view(shape)
        # Without the traces that the base class keeps for its messages, which take longer than small operators do.
        return getattr(self, n.op)(n.target, args, kwargs)


def starting_memory(program: ExportedProgram) -> dict[str, Any]:
    """What a program's parameters, buffers and constants hold at the start, by placeholder."""
    found = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            value = held(program, spec.target)
            found[spec.arg.name] = value.detach() if isinstance(value, torch.Tensor) else value
    return found


def _memory(program: ExportedProgram, start: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {**starting_memory(program), **(start or {})}
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in found.items()}


def _state(program: ExportedProgram, memory: Mapping[str, Any]) -> dict[str, Any]:
    """What buffers and parameters hold, by qualified name."""
    return {
        str(spec.target): memory[spec.arg.name].clone()
        for spec in program.graph_signature.input_specs
        if spec.kind in (InputKind.BUFFER, InputKind.PARAMETER)
    }


def _given(signature: ExportGraphSignature, arguments: Arguments) -> dict[str, Any]:
    """The arguments of a call by placeholder; each a copy of its own."""
    names = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    return dict(zip(names, detached(arguments), strict=True))


def _in_order(signature: ExportGraphSignature, memory: Mapping[str, Any]) -> list[Any]:
    return [memory[spec.arg.name] for spec in signature.input_specs]
