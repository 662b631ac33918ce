"""What one node of a torch.fx graph does: its operands, and which of them it writes or aliases.

The table of effects speaks of schema arguments; this file speaks of nodes. Higher-order operators take their effect
from their subgraphs, what is not known at all is conservative: reads everything, may alias everything.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from copyproof.spec.effects import Chain, Contents, Effect, Profile, argument_names, canonical, effect_of

ALL = -1
"""As a result index: every result of the node."""


@dataclass(frozen=True)
class Action:
    """What a node does, by operand position.

    Attributes:
        name: the operator's canonical name.
        operands: the nodes it reads, in argument order, those inside lists too, each as often as it stands there.
        writes: positions of the operands whose regions it writes.
        aliases: pairs (result, operand position); the result is an index into a tuple or `ALL`.
        chains: the chains of effects that it takes part in.
        contents: what its results contain.
        maybe: its aliases may or may not be there.
        approximation: what is assumed and not known about it, or None.
        opaque: why its writes are not modelled at all, or None.
    """

    name: str
    operands: tuple[Node, ...] = ()
    writes: tuple[int, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    chains: frozenset[Chain] = frozenset()
    contents: Contents = Contents.FUNCTION
    maybe: bool = False
    approximation: str | None = None
    opaque: str | None = None


_NUMBER_FUNCTIONS = frozenset(
    f"{module}.{name}"
    for module, names in {
        "_operator": "add sub mul truediv floordiv mod pow neg pos abs eq ne lt le gt ge and_ or_ xor not_ invert",
        "math": "ceil floor trunc sqrt prod",
        "torch": "sym_int sym_float sym_not sym_max sym_min sym_ite sym_sum _sym_sqrt",
        "builtins": "max min abs round int float bool",
    }.items()
    for name in names.split(" ")
)
"""Python functions that a graph calls on numbers, pure ones."""


def overload_of(target: Any) -> torch._ops.OpOverload | None:
    """The ATen or custom operator behind a node's target, also behind an Edge one; None for anything else."""
    inner = getattr(target, "_op", None)
    if isinstance(inner, torch._ops.OpOverload):
        return inner
    return target if isinstance(target, torch._ops.OpOverload) else None


def action_of(node: Node) -> Action:
    """What `node` does. Placeholders, `get_attr` and the output do nothing here."""
    if node.op != "call_function":
        return Action(node.op)
    overload = overload_of(node.target)
    if overload is not None:
        return _by_schema(node, overload)
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return _higher_order(node, node.target)
    operands = tuple(_nodes([node.args, node.kwargs]))
    name = f"{getattr(node.target, '__module__', '')}.{getattr(node.target, '__name__', str(node.target))}"
    tensors = [n.name for n in operands if not is_scalar(n.meta.get("val"))]
    if node.target is operator.getitem and not isinstance(operands[0].meta.get("val"), torch.Tensor):
        return Action("getitem", operands, aliases=((ALL, 0),))
    if name in _NUMBER_FUNCTIONS and not tensors:
        return Action(name, operands)
    return _unmodelled(name, operands, f"{node.name} calls {name}, a Python function without a model")


def _unmodelled(name: str, operands: tuple[Node, ...], reason: str) -> Action:
    """Something of which nothing is known: it may read, write and alias everything, in every chain of effects."""
    every = tuple((ALL, i) for i in range(len(operands)))
    return Action(name, operands, aliases=every, maybe=True, chains=frozenset(Chain), opaque=reason)


def graph_of(graph_module: torch.fx.GraphModule) -> torch.fx.Graph:
    """The graph of a module, made to know it: subgraphs are found through the owner, and a graph that was put into
    several modules knows none of them, or another one."""
    graph = graph_module.graph
    graph.owning_module = graph_module
    return graph


def is_scalar(value: Any) -> bool:
    """Whether a node's `meta["val"]` is a number (or symbolic number) and not a tensor."""
    return isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))


def is_lowered_view(node: Node, profile: Profile, returned: Container[Node]) -> bool:
    """Whether `profile` turns this node's result into an alias of its first operand.

    A result that the output node names stays a copy (exir/passes/replace_view_copy_with_view_pass.py, 1.5.1).

    Args:
        node: any node.
        profile: the lowering.
        returned: the nodes that the output node names when that lowering runs.
    """
    return _in_profile(node, profile) and node not in returned


def lowered_base(node: Node, profile: Profile) -> Node:
    """What the result of a lowered view is an alias of: the base of the whole chain of such operators above it, also
    where one of them stays a copy itself (exir/passes/normalize_view_copy_base_pass.py, 1.5.1)."""
    base = node
    while _in_profile(base, profile):
        base = viewed(base)
    return base


def viewed(node: Node) -> Node:
    """What a view operator is called on: its argument `self`, by position or keyword."""
    operand = node.args[0] if node.args else node.kwargs["self"]
    assert isinstance(operand, Node)
    return operand


def _in_profile(node: Node, profile: Profile) -> bool:
    if node.op != "call_function" or not profile.views:
        return False
    overload = overload_of(node.target)
    return overload is not None and canonical(overload) in profile.views


def _by_schema(node: Node, overload: torch._ops.OpOverload) -> Action:
    effect: Effect = effect_of(overload)
    operands: list[Node] = []
    position_of: list[int] = []
    for index, argument in enumerate(argument_names(overload)):
        value = node.args[index] if index < len(node.args) else node.kwargs.get(argument)
        for operand in _nodes(value):
            operands.append(operand)
            position_of.append(index)
    if effect.opaque is not None:
        return _unmodelled(canonical(overload), tuple(operands), f"{node.name}: {effect.opaque}")
    written = effect.writes
    if effect.only_in_training and _argument(node, overload, ("training", "train", "use_input_stats")) is False:
        written = ()
    chains = frozenset() if effect.chain is None else frozenset({effect.chain})
    if not written and not effect.aliases and not effect.maybe:
        return Action(
            canonical(overload),
            tuple(operands),
            chains=chains,
            contents=effect.contents,
            approximation=effect.approximation,
        )
    single = len(overload._schema.returns) == 1
    return Action(
        canonical(overload),
        tuple(operands),
        tuple(i for i, p in enumerate(position_of) if p in written),
        tuple(
            (ALL if single else result, i)
            for result, argument in effect.aliases
            for i, p in enumerate(position_of)
            if p == argument
        )
        or (tuple((ALL, i) for i in range(len(operands))) if effect.maybe else ()),
        chains,
        effect.contents,
        effect.maybe,
        effect.approximation,
    )


def _argument(node: Node, overload: torch._ops.OpOverload, names: tuple[str, ...]) -> Any:
    """The argument of one of these names in a call; None where it is not given."""
    for index, argument in enumerate(argument_names(overload)):
        if argument in names:
            return node.args[index] if index < len(node.args) else node.kwargs.get(argument)
    return None


def _higher_order(node: Node, target: torch._ops.HigherOrderOperator) -> Action:
    name = target.name()
    operands = tuple(n for n in _nodes([node.args, node.kwargs]) if n.op != "get_attr" or _is_tensor(n))
    if name in ("auto_functionalized", "auto_functionalized_v2"):
        inner = overload_of(node.args[0])
        if inner is None:
            return _unmodelled(name, operands, f"{node.name} ({name}) calls something that is no operator")
        effect = effect_of(inner)
        if effect.aliases:
            return _unmodelled(name, operands, f"{node.name} ({name}) calls an operator that returns an alias")
        chains = frozenset() if effect.chain is None else frozenset({effect.chain})
        assumed = f"{canonical(inner)} does just what its schema says, and is a function of its arguments"
        return Action(name, operands, chains=chains, approximation=assumed, opaque=effect.opaque)
    if name == "print":
        return Action(name, operands, chains=frozenset({Chain.ORDERED}))
    if name == "executorch_call_delegate":
        return Action(
            name,
            operands,
            chains=frozenset({Chain.ORDERED}),
            approximation=f"{name} is a function of its arguments; buffers that it owns are outside the proof",
        )
    subgraphs = [_module(n) for n in _nodes([node.args, node.kwargs]) if n.op == "get_attr" and _is_module(n)]
    if not subgraphs:
        return _unmodelled(name, operands, f"{node.name} ({name}) is a higher-order operator without a model")
    nodes = [n for graph in subgraphs for n in _all_nodes(graph)]
    odd = next((n.name for n in nodes if n.op in ("call_module", "call_method")), None)
    if odd is not None:
        return _unmodelled(name, operands, f"{node.name} ({name}) calls a module or method at {odd}")
    if any(_shares_results(graph) for graph in subgraphs):
        return _unmodelled(name, operands, f"{node.name} ({name}) returns results that share memory with each other")
    inside = [(n, action_of(n)) for n in nodes]
    for inner_node, action in inside:
        if action.writes or action.opaque:
            why = action.opaque or f"{inner_node.name} writes"
            return _unmodelled(name, operands, f"{node.name} ({name}): inside its subgraph, {why}")
    returns_input = any(_returns_placeholder(graph) for graph in subgraphs)
    return Action(
        name,
        operands,
        aliases=tuple((ALL, i) for i in range(len(operands))) if returns_input else (),
        chains=frozenset().union(*(action.chains for _, action in inside)),
        maybe=returns_input,
        approximation=next((action.approximation for _, action in inside if action.approximation), None),
    )


def _shares_results(graph_module: torch.fx.GraphModule) -> bool:
    """Whether two results of a subgraph may lie in one storage: one is returned twice, or both are views of one."""
    roots: dict[Node, Node] = {}
    for node in graph_module.graph.nodes:
        action = action_of(node)
        bases = [roots[action.operands[i]] for _, i in action.aliases if action.operands[i] in roots]
        roots[node] = bases[0] if bases else node
        if node.op == "output":
            returned = [roots[n] for n in _nodes(node.args)]
            return len(returned) != len(set(returned))
    return False


def _returns_placeholder(graph_module: torch.fx.GraphModule) -> bool:
    """Whether a subgraph may hand back one of its inputs: one is returned as it is, or through views."""
    shared = {n for n in graph_module.graph.nodes if n.op in ("placeholder", "get_attr")}
    for node in graph_module.graph.nodes:
        action = action_of(node)
        reshapes = action.contents is Contents.FIRST and action.name.startswith("aten.view_copy")
        if any(action.operands[i] in shared for _, i in action.aliases) or (
            reshapes and action.operands and action.operands[0] in shared
        ):
            shared.add(node)
        if node.op == "output" and any(returned in shared for returned in node.all_input_nodes):
            return True
    return False


def _all_nodes(graph_module: torch.fx.GraphModule) -> Iterator[Node]:
    for module in graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


def _module(node: Node) -> Any:
    owner: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        owner = getattr(owner, part)
    return owner


def _is_tensor(node: Node) -> bool:
    return isinstance(_module(node), torch.Tensor)


def _is_module(node: Node) -> bool:
    return isinstance(_module(node), torch.fx.GraphModule)


def _nodes(value: Any) -> Iterator[Node]:
    """The nodes in an argument, in order, those inside lists, tuples and dictionaries (by key) too."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _nodes(item)
    elif isinstance(value, dict):
        for _, item in sorted(value.items()):
            yield from _nodes(item)
