"""Constants that the pipeline has folded: what it computed while it lowered, found again among the model's nodes.

A pass may run operators whose operands are all constants, and leave their result (`do_quant_fusion_and_const_prop`).
The same operators are run here; a constant of the program that holds just these bytes is that node's value.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.utils import _pytree as pytree

from copyproof.spec.graph import action_of, overload_of
from copyproof.spec.signature import held
from copyproof.verify.spelling import attribute, content_of
from copyproof.verify.trace import Content


def folded(original: ExportedProgram, constants: Collection[Content]) -> dict[Content, str]:
    """Which nodes of a program have the value of a constant that the program itself does not hold.

    Args:
        original: the program.
        constants: the contents of such constants.

    Returns:
        the name of a node, by the content that it has.
    """
    found: dict[Content, str] = {}
    values: dict[Node, Any] = {}
    mutated = set(original.graph_signature.buffers_to_mutate.values())
    specs = {getattr(spec.arg, "name", ""): spec for spec in original.graph_signature.input_specs}
    for node in original.graph.nodes if constants else ():
        if node.op == "placeholder":
            spec = specs.get(node.name)
            if spec is not None and spec.kind is not InputKind.USER_INPUT and spec.target not in mutated:
                value = held(original, spec.target)
                if isinstance(value, torch.Tensor):
                    values[node] = value.detach()
        elif node.op == "get_attr":
            value = attribute(original.graph_module, str(node.target))
            if isinstance(value, torch.Tensor):
                values[node] = value.detach()
        elif node.op == "call_function" and overload_of(node.target) is not None:
            action = action_of(node)
            if action.writes or action.chains or not all(operand in values for operand in node.all_input_nodes):
                continue
            args, kwargs = pytree.tree_map_only(Node, values.__getitem__, (node.args, node.kwargs))
            try:
                with torch.no_grad():
                    values[node] = node.target(*args, **kwargs)
            except Exception:  # an operator that cannot run here folds nothing
                continue
            if isinstance(values[node], torch.Tensor) and content_of(values[node]) in constants:
                found.setdefault(content_of(values[node]), node.name)
    return found
