"""Running the original and the rewritten graph side by side on real numbers.

The original runs by its functional meaning, the rewritten graph over real memory: `copy_` and in-place operators really
write, and what the lowering profile turns into a view is one. Moving a copy changes no arithmetic, so the numbers
are compared bit for bit (two NaNs agree).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from copyproof.spec.effects import NO_LOWERING, Profile
from copyproof.spec.errors import first_line
from copyproof.spec.graph import action_of, is_lowered_view, lowered_base
from copyproof.spec.signature import held, mutated_placeholder

_TRIALS = 5
_CALLS = 4
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_SHOWN = 6


@dataclass
class Witness:
    """What the runs showed.

    Attributes:
        ran: how many runs both graphs completed.
        reason: why there was no run, or empty.
        failure: why the rewritten graph cannot run where the original can, or empty.
        outputs, targets, frame, reads: sentences with the numbers that differ, by output index, target,
            other input, and (step, operand) of a watched read.
    """

    ran: int = 0
    reason: str = ""
    failure: str = ""
    outputs: dict[int, str] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    frame: dict[str, str] = field(default_factory=dict)
    reads: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        """Whether any number differed."""
        return bool(self.failure or self.outputs or self.targets or self.frame or self.reads)

    @property
    def lines(self) -> tuple[str, ...]:
        """All differences, or why none can be shown."""
        found = (*self.outputs.values(), *self.targets.values(), *self.frame.values(), *self.reads.values())
        if self.failure:
            found = (f"the rewritten graph cannot run where the original can: {self.failure}", *found)
        if found:
            return found
        if self.ran:
            return (f"{self.ran} runs with random contents showed no difference",)
        return (f"not run: {self.reason}",)


@dataclass
class _Run:
    outputs: list[Any]
    inputs: dict[str, Any]
    watched: dict[tuple[str, int], Any]


def witness(
    original: ExportedProgram,
    graph_module: GraphModule,
    signature: ExportGraphSignature,
    profile: Profile,
    watch: Collection[tuple[str, int]],
) -> Witness:
    """Runs both graphs on the example inputs and on random contents, and compares what they compute.

    Args:
        original: the original program.
        graph_module, signature: the rewritten graph.
        profile: how the rewritten graph will be lowered.
        watch: steps and operand positions whose operands are compared too.
    """
    found = Witness()
    for trial in range(_TRIALS):
        try:
            inputs = _inputs(original, trial)
            torch.manual_seed(trial)
            expected = _run(original.graph_module, deepcopy(inputs), NO_LOWERING, watch)
        except Exception as error:  # whatever an operator raises on these contents: try other ones
            found.reason = found.reason or first_line(error)
            continue
        try:
            torch.manual_seed(trial)
            actual = _run(graph_module, deepcopy(inputs), profile, watch)
        except Exception as error:  # the original ran on the same contents
            found.failure = first_line(error)
            break
        found.ran += 1
        try:
            _compare(original, inputs, expected, actual, found)
        except RuntimeError as error:
            found.failure = first_line(error)
        if found.differs:
            break
    return found


def seen_from_another_start(original: ExportedProgram, starts: Mapping[str, bytes]) -> Witness:
    """Runs the original over a few calls from its own state, and from one in which some buffers start otherwise.

    Args:
        original: the original program.
        starts: what those buffers start with, by qualified name.
    """
    found = Witness()
    try:
        own = _inputs(original, 0)
        specs = original.graph_signature.input_specs
        names = {spec.target: spec.arg.name for spec in specs if spec.target is not None}
        other = deepcopy(own)
        for name, data in starts.items():
            value = other[names[name]]
            other[names[name]] = torch.frombuffer(bytearray(data), dtype=value.dtype).reshape(value.shape)
        for call in range(_CALLS):
            torch.manual_seed(call)
            expected = _run(original.graph_module, own, NO_LOWERING, ())
            torch.manual_seed(call)
            actual = _run(original.graph_module, other, NO_LOWERING, ())
            found.ran += 1
            for index, spec in enumerate(original.graph_signature.output_specs):
                target = mutated_placeholder(spec, original.graph_signature)
                if target is not None:
                    own[target], other[target] = expected.outputs[index], actual.outputs[index]
                elif not _equal(expected.outputs[index], actual.outputs[index]):
                    shown = _show(expected.outputs[index], actual.outputs[index])
                    found.outputs[index] = f"output {index} of call {call + 1} should be {shown}"
            if found.differs:
                break
    except Exception as error:  # whatever an operator raises on these contents
        found.reason = first_line(error)
    return found


def _compare(original: ExportedProgram, inputs: dict[str, Any], expected: _Run, actual: _Run, found: Witness) -> None:
    mutated: dict[str, int] = {}
    for index, spec in enumerate(original.graph_signature.output_specs):
        target = mutated_placeholder(spec, original.graph_signature)
        if target is not None:
            mutated[target] = index
            continue
        now = actual.outputs[index] if index < len(actual.outputs) else None
        if not _equal(expected.outputs[index], now):
            found.outputs[index] = f"output {index} should be {_show(expected.outputs[index], now)}"
    for name, before in inputs.items():
        should = before
        if name in mutated:
            should = expected.outputs[mutated[name]]
            if should.shape != before.shape or should.dtype != before.dtype:
                should = torch.empty_like(before).copy_(should)
        if not _equal(should, actual.inputs[name]):
            text = f"{name} should hold {_show(should, actual.inputs[name])}"
            (found.targets if name in mutated else found.frame)[name] = text
    for key, should in expected.watched.items():
        if key in actual.watched and not _equal(should, actual.watched[key]):
            found.reads[key] = f"{key[0]} should read {_show(should, actual.watched[key])}"


def _run(
    graph_module: GraphModule, inputs: dict[str, Any], profile: Profile, watch: Collection[tuple[str, int]]
) -> _Run:
    """Runs a graph on `inputs` (by placeholder name, written in place)."""
    graph = graph_module.graph
    output = graph.output_node()
    returned = set(output.all_input_nodes)
    values: dict[Node, Any] = {}
    watched: dict[tuple[str, int], Any] = {}
    steps = {name for name, _ in watch}
    # Values that nothing reads later are dropped, so that large models fit.
    last_user = {operand: node for node in graph.nodes for operand in node.all_input_nodes}
    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "output":
                break
            if node.op == "placeholder":
                values[node] = inputs[node.name]
                continue
            if node.op == "get_attr":
                values[node] = _attribute(graph_module, str(node.target))
                continue
            args, kwargs = pytree.tree_map_only(Node, lambda n: values[n], (node.args, node.kwargs))
            if node.name in steps:
                seen = [values[operand] for operand in action_of(node).operands]
                for index, value in enumerate(pytree.tree_leaves(seen)):
                    watched[(node.name, index)] = _snapshot(value)
            if is_lowered_view(node, profile, returned):
                shape = args[1] if len(args) > 1 else kwargs["size"]
                values[node] = values[lowered_base(node, profile)].reshape(shape)
            else:
                values[node] = node.target(*args, **kwargs)
            if isinstance(values[node], list):
                values[node] = tuple(values[node])
            for operand in node.all_input_nodes:
                if last_user[operand] is node and not profile.views:
                    values.pop(operand, None)
        outputs = [_snapshot(values[o]) if isinstance(o, Node) else o for o in output.args[0]]  # type: ignore[union-attr]
    return _Run(outputs, inputs, watched)


def _inputs(original: ExportedProgram, trial: int) -> dict[str, Any]:
    """Contents for every placeholder: trial 0 has the exported contents and example inputs, later ones random
    floats in the buffers, and then also in the user inputs; in the last two they are large, so that they differ
    as integers too. Integers stay, since they index; but in the last one those of buffers are small numbers."""
    size = 10.0 if trial >= _TRIALS - 2 else 1.0
    generator = torch.Generator().manual_seed(trial)
    given = iter(pytree.tree_leaves(original.example_inputs) if original.example_inputs else ())
    names = {node.name: node for node in original.graph.nodes if node.op == "placeholder"}
    found: dict[str, Any] = {}
    for spec in original.graph_signature.input_specs:
        name = spec.arg.name
        val = names[name].meta.get("val")
        if spec.kind is InputKind.USER_INPUT:
            example = next(given, None)
            value = example if example is not None else _made_up(val)
            randomise = trial >= 2 or example is None
        else:
            value = held(original, spec.target)
            if value is None:
                value = _made_up(val)
            randomise = trial >= 1 and spec.kind is InputKind.BUFFER
        if isinstance(value, torch.Tensor):
            value = value.detach().clone()
            if value.dtype in _INTEGERS and spec.kind is InputKind.BUFFER and trial == _TRIALS - 1:
                value = torch.randint(0, 3, value.shape, generator=generator).to(value.dtype)
            if value.is_floating_point() and randomise:
                value = (size * torch.randn(value.shape, generator=generator)).to(value.dtype)
        found[name] = value
    return found


def _made_up(val: Any) -> Any:
    if isinstance(val, torch.Tensor):
        shape = [int(s.node.hint or 1) if isinstance(s, torch.SymInt) else s for s in val.shape]
        return torch.zeros(shape, dtype=val.dtype)
    if isinstance(val, torch.SymInt):
        return int(val.node.hint or 1)
    return val


def _attribute(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def _snapshot(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        same = a == b
        if a.is_floating_point() or a.is_complex():
            same |= a.isnan() & b.isnan()
        return bool(same.all())
    return type(a) is type(b) and bool(a == b)


def _show(expected: Any, actual: Any) -> str:
    """`[1, 2] but is [1, 3]`, from the first difference on where the tensors are long."""
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return f"{_kind(expected)} but is {_kind(actual)}"
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return f"{_kind(expected)} but is {_kind(actual)}"
    a, b = expected.reshape(-1), actual.reshape(-1)
    start = int((a != b).nonzero()[0]) if a.numel() > _SHOWN else 0
    where = f" (from element {start})" if start else ""
    more = ", ..." if start + _SHOWN < a.numel() else ""
    return (
        f"[{', '.join(_number(x) for x in a[start : start + _SHOWN].tolist())}{more}] but is "
        f"[{', '.join(_number(x) for x in b[start : start + _SHOWN].tolist())}{more}]{where}"
    )


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {list(value.shape)}"
    return "missing" if value is None else repr(value)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
