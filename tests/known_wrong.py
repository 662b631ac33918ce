"""Passes that are wrong on purpose. Each must be refuted wherever its fault shows."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx import GraphModule, Node

from copyproof.impl import end_placement, reference_pass
from copyproof.impl.insertion import insert_copy, mutated, rename_outputs
from copyproof.spec.graph import action_of
from copyproof.spec.rule import REFERENCE
from copyproof.spec.signature import MUTATIONS

Rewritten = tuple[GraphModule, ExportGraphSignature]


def after_last_schema_reader(program: ExportedProgram) -> Rewritten:
    """Places each copy after the last reader of its target that operator schemas know of, and after its source.

    It takes `view_copy` for a fresh tensor, outputs for harmless, and copies for no readers.
    """
    graph = program.graph
    outputs: list[Any] = list(graph.output_node().args[0])  # type: ignore[arg-type]
    position = {node: i for i, node in enumerate(graph.nodes)}
    last_placeholder = [node for node in graph.nodes if node.op == "placeholder"][-1]
    found = []
    for index, target in mutated(program):
        source = outputs[index]
        if source is target:
            continue
        readers, frontier = [source, last_placeholder], [target]
        while frontier:
            for user in frontier.pop().users:
                if user.op == "output":
                    continue
                readers.append(user)
                if action_of(user).aliases:
                    frontier.append(user)
        found.append((index, target, source, max(readers, key=position.__getitem__)))
    for index, target, source, last in found:
        insert_copy(graph, last, target, source)
        outputs[index] = target
    signature = rename_outputs(program, outputs)
    program.graph_module.recompile()
    return program.graph_module, signature


def right_after_the_source(program: ExportedProgram) -> Rewritten:
    """Copies each new value as soon as it is there."""
    return _copied_at_once(program, name_the_copy=False)


def names_the_copy(program: ExportedProgram) -> Rewritten:
    """Copies each new value as soon as it is there, and names the copy as output, not the input that it writes."""
    return _copied_at_once(program, name_the_copy=True)


def _copied_at_once(program: ExportedProgram, name_the_copy: bool) -> Rewritten:
    outputs: list[Any] = list(program.graph.output_node().args[0])  # type: ignore[arg-type]
    for index, target in mutated(program):
        copy = insert_copy(program.graph, outputs[index], target, outputs[index])
        outputs[index] = copy if name_the_copy else target
    signature = rename_outputs(program, outputs)
    program.graph_module.recompile()
    return program.graph_module, signature


def one_step_early(program: ExportedProgram) -> Rewritten:
    """Moves each copy of the reference pass up past the step that it must come after."""
    before = set(program.graph.nodes)
    graph_module, signature = reference_pass(program)
    for copy in _copies(graph_module):
        step = copy.prev
        while step not in before:
            step = step.prev
        if step.op == "call_function" and step not in copy.all_input_nodes:
            step.prepend(copy)
    graph_module.recompile()
    return graph_module, signature


def first_write_lost(program: ExportedProgram) -> Rewritten:
    """Leaves out the first copy of the reference pass."""
    graph_module, signature = reference_pass(program)
    for copy in _copies(graph_module)[:1]:
        copy.replace_all_uses_with(copy.args[0])  # type: ignore[arg-type]
        graph_module.graph.erase_node(copy)
    graph_module.recompile()
    return graph_module, signature


def last_write_doubled(program: ExportedProgram) -> Rewritten:
    """Copies the last target twice."""
    graph_module, signature = reference_pass(program)
    for copy in _copies(graph_module)[-1:]:
        insert_copy(graph_module.graph, copy, *copy.args)  # type: ignore[arg-type]
    graph_module.recompile()
    return graph_module, signature


def copies_into_the_next_target(program: ExportedProgram) -> Rewritten:
    """Writes each value into the target after its own."""
    graph_module, signature = reference_pass(program)
    copies = _copies(graph_module)
    targets = [copy.args[0] for copy in copies]
    for copy, target in zip(copies, targets[1:] + targets[:1], strict=True):
        copy.args = (target, copy.args[1])
    graph_module.recompile()
    return graph_module, signature


def user_outputs_reversed(program: ExportedProgram) -> Rewritten:
    """Returns the user outputs in reverse order, under a signature that says so."""
    _, signature = reference_pass(program)
    return _reversed(program, signature)


def spec_names_rotated(program: ExportedProgram) -> Rewritten:
    """Leaves the outputs as they are, and gives each mutation spec the name of the next one's output."""
    graph_module, signature = reference_pass(program)
    specs = list(signature.output_specs)
    places = [i for i, spec in enumerate(specs) if spec.kind in MUTATIONS]
    names = [specs[i].arg for i in places]
    for i, name in zip(places, names[1:] + names[:1], strict=True):
        specs[i] = OutputSpec(specs[i].kind, name, specs[i].target)
    return graph_module, ExportGraphSignature(signature.input_specs, specs)


def clones_removed(program: ExportedProgram) -> Rewritten:
    """The reference pass without the clones that it inserts."""
    before = set(program.graph.nodes)
    graph_module, signature = reference_pass(program)
    for node in list(graph_module.graph.nodes):
        if node not in before and node.op == "call_function" and "clone" in str(node.target):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
    outputs = list(graph_module.graph.output_node().args[0])  # type: ignore[arg-type]
    signature = rename_outputs(program, outputs)
    graph_module.recompile()
    return graph_module, signature


def writes_a_bystander(program: ExportedProgram) -> Rewritten:
    """Adds a write into the first input that is no target."""
    graph_module, signature = reference_pass(program)
    targets = {copy.args[0] for copy in _copies(graph_module)}
    bystanders = [n for n in graph_module.graph.nodes if n.op == "placeholder" and n not in targets]
    last = graph_module.graph.output_node().prev
    with graph_module.graph.inserting_after(last):
        zero = graph_module.graph.call_function(torch.ops.aten.zero_.default, (bystanders[0],))
    zero.meta["val"] = bystanders[0].meta["val"]
    graph_module.recompile()
    return graph_module, signature


def _copies(graph_module: GraphModule) -> list[Node]:
    return [n for n in graph_module.graph.nodes if n.target is torch.ops.aten.copy_.default]


def _reversed(program: ExportedProgram, signature: ExportGraphSignature) -> Rewritten:
    node = program.graph.output_node()
    outputs: list[Any] = list(node.args[0])  # type: ignore[arg-type]
    places = [i for i, s in enumerate(signature.output_specs) if s.kind is OutputKind.USER_OUTPUT]
    specs = list(signature.output_specs)
    for place, output in zip(places, list(reversed([outputs[i] for i in places])), strict=True):
        outputs[place] = output
        specs[place] = OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(output.name), None)
    node.args = (tuple(outputs),)
    program.graph_module.recompile()
    return program.graph_module, ExportGraphSignature(signature.input_specs, specs)


def raises_on_views(program: ExportedProgram) -> Rewritten:
    """The reference pass, but it raises where the graph has a view."""
    if any(node.target is torch.ops.aten.view.default for node in program.graph.nodes):
        raise RuntimeError("no views, please")
    return reference_pass(program)


def later_than_its_rule(program: ExportedProgram) -> Rewritten:
    """End placement, which is right, but says that it follows the rule of early placement."""
    return end_placement()(program)


later_than_its_rule.rule = REFERENCE  # type: ignore[attr-defined]


def always_raises(program: ExportedProgram) -> Rewritten:
    """A pass with a bug."""
    raise KeyError("oops")
