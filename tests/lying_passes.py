"""Passes that are wrong and cover it up: by what they do to types, contents, names or constants."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from copyproof.impl import reference_pass

aten = torch.ops.aten
Rewritten = tuple[GraphModule, Any]


def _copies(graph_module: GraphModule) -> list[Node]:
    return [node for node in graph_module.graph.nodes if node.target is aten.copy_.default]


def _turned_before(node: Node, value: Node) -> None:
    """Makes `node` read a 2x2 value transposed."""
    with node.graph.inserting_before(node):
        turned = node.graph.call_function(aten.as_strided.default, (value, [2, 2], [1, 2]))
    node.replace_input_with(value, turned)


def type_changed_in_place(program: ExportedProgram) -> Rewritten:
    """Transposes the type of each new value in place, and writes the value back transposed."""
    graph_module, signature = reference_pass(program)
    for copy in _copies(graph_module):
        value: Any = copy.args[1]
        fake = value.meta.get("val")
        if value.op == "call_function" and isinstance(fake, torch.Tensor) and fake.shape == (2, 2):
            if fake.stride() == (2, 1):
                with fake.fake_mode:  # type: ignore[attr-defined]
                    fake.t_()
            _turned_before(copy, value)
    graph_module.recompile()
    return graph_module, signature


def input_retyped(program: ExportedProgram) -> Rewritten:
    """Gives the placeholder x another target and a transposed type, and reads it transposed."""
    graph_module, signature = reference_pass(program)
    given = next(node for node in graph_module.graph.nodes if node.name == "x")
    given.target = "x_"
    with given.meta["val"].fake_mode:
        given.meta["val"] = torch.empty_strided((2, 2), (1, 2))
    for user in list(given.users):
        if user.op == "call_function":
            _turned_before(user, given)
    graph_module.recompile()
    return graph_module, signature


def buffer_held_as_a_constant(program: ExportedProgram) -> Rewritten:
    """Restores the first buffer at the end, through a constant of the graph that is its memory."""
    graph_module, signature = reference_pass(program)
    name = next(iter(program.state_dict), None)
    graph, body = graph_module.graph, [n for n in graph_module.graph.nodes if n.op == "call_function"]
    if name is None or not body:
        return graph_module, signature
    graph_module._kept = program.state_dict[name]
    with graph.inserting_before(body[0]):
        held = graph.get_attr("_kept")
        old = graph.call_function(aten.clone.default, (held,))
    with graph.inserting_before(graph.output_node()):
        graph.call_function(aten.copy_.default, (held, old))
    graph_module.recompile()
    return graph_module, signature


def constant_of_a_false_type(program: ExportedProgram) -> Rewritten:
    """Writes back a transposed view of a new constant whose type says that it is not transposed."""
    graph_module, signature = reference_pass(program)
    graph_module._odd = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with graph_module.graph.inserting_before(graph_module.graph.output_node()):
        held = graph_module.graph.get_attr("_odd")
        turned = graph_module.graph.call_function(aten.permute.default, (held, [1, 0]))
    held.meta["val"] = graph_module._odd
    with next(iter(graph_module.graph.nodes)).meta["val"].fake_mode:
        turned.meta["val"] = torch.empty(2, 2)
    for copy in _copies(graph_module):
        value: Any = copy.args[1]
        if value.op == "call_function":
            with graph_module.graph.inserting_before(copy):
                wrong = graph_module.graph.call_function(aten.permute.default, (value, [1, 0]))
            copy.replace_input_with(value, wrong)
    graph_module.recompile()
    return graph_module, signature


def given_program_spoilt(program: ExportedProgram) -> ExportedProgram:
    """Returns another program that is right, and fills the buffers of the one that it was given."""
    from copyproof.spec.pipeline import copy_of

    right = copy_of(program)
    graph_module, signature = reference_pass(right)
    right._graph_module, right._graph_signature = graph_module, signature
    for value in program.state_dict.values():
        value.fill_(7)
    return right


def buffers_that_overlap(program: ExportedProgram) -> Rewritten:
    """Lays all buffers into one storage, where they overlap."""
    base = torch.zeros(4 + len(program.state_dict))
    for place, name in enumerate(program.state_dict):
        program.state_dict[name] = base[place : place + 4].view(2, 2)
    return reference_pass(program)


_SEEN: set[str] = set()


def wrong_the_first_time(program: ExportedProgram) -> Rewritten:
    """Changes the buffers of each program that it has not seen before."""
    text = str(program.graph)
    if text not in _SEEN:
        _SEEN.add(text)
        for value in program.state_dict.values():
            value.fill_(7)
    return reference_pass(program)
