"""Putting copies and clones into a graph, and naming them in its output and signature."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import OutputSpec, TensorArgument
from torch.fx import Graph, Node

from copyproof.spec.signature import MUTATIONS, mutated_placeholder


def mutated(program: ExportedProgram) -> list[tuple[int, Node]]:
    """The targets of `program`: for each mutation output, its index and the placeholder that it mutates.

    Raises:
        ValueError: the signature names a target that no placeholder of the graph stands for.
    """
    signature = program.graph_signature
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found = []
    for index, spec in enumerate(signature.output_specs):
        if spec.kind not in MUTATIONS:
            continue
        name = mutated_placeholder(spec, signature)
        if name not in placeholders:
            raise ValueError(
                f"output {index} mutates {spec.target!r}, but the graph has no placeholder for it; "
                "export the program again, or repair its signature"
            )
        found.append((index, placeholders[name]))
    return found


def insert_copy(graph: Graph, after: Node, target: Node, source: Node) -> Node:
    """A `copy_` of `source` into `target`, right after the node `after`."""
    with graph.inserting_after(after):
        copy = graph.call_function(torch.ops.aten.copy_.default, (target, source))
    copy.meta["val"] = target.meta["val"]
    return copy


def insert_clone(graph: Graph, after: Node, value: Node) -> Node:
    """A clone of `value`, right after the node `after`.

    `aten.clone` serves Edge graphs too: after the write-back point nothing removes it, and it has an out variant.
    """
    with graph.inserting_after(after):
        clone = graph.call_function(torch.ops.aten.clone.default, (value,))
    with torch.no_grad():
        clone.meta["val"] = value.meta["val"].clone()
    return clone


def rename_outputs(program: ExportedProgram, outputs: list[Any]) -> ExportGraphSignature:
    """Makes the output node return `outputs` and gives the signature that says so, kinds and targets kept."""
    node = program.graph.output_node()
    node.args = (type(node.args[0])(outputs) if isinstance(node.args[0], (list, tuple)) else tuple(outputs),)
    signature = program.graph_signature
    specs = []
    for spec, output in zip(signature.output_specs, outputs, strict=True):
        if isinstance(output, Node) and isinstance(spec.arg, TensorArgument):
            spec = OutputSpec(spec.kind, TensorArgument(name=output.name), spec.target)
        specs.append(spec)
    return ExportGraphSignature(list(signature.input_specs), specs)
