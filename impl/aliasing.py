"""Which storages each value of a graph may lie in, and where each storage is read and written last.

One walk over the nodes; the reference pass asks, the graph is not changed.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from torch.fx import Graph, Node

from copyproof.spec.effects import Contents, Profile, reads_contents, same_order
from copyproof.spec.graph import ALL, Action, action_of, is_lowered_view, is_scalar, lowered_base
from copyproof.spec.rule import Relation

Storage: TypeAlias = tuple[Node, int]
"""A storage, named by the result that made it: the node, and the index into its results (0 for a single one)."""


@dataclass(frozen=True)
class Place:
    """Where a value lies.

    Attributes:
        storages: the storages it lies in; more than one only where it is not known which.
        whole: it is all of its storage, in order.
        certain: it does lie there; otherwise it may also be a tensor of its own.
        relation: how a read of this value reads the storage, in the words of the rule.
    """

    storages: frozenset[Storage]
    whole: bool = True
    certain: bool = True
    relation: Relation = Relation.DIRECT_READ


@dataclass
class Aliasing:
    """The aliases of a graph, as the given profile lowers it.

    Attributes:
        position: index of each node in the graph.
        places: where each result lies.
        last_read: for each storage and relation, the position of the last step that reads it so.
        last_use: for each storage, the position of the last step that reads or writes it.
        writes: for each storage, the positions of the steps that write it, in order.
        lowered: the lowered views, in order.
    """

    position: dict[Node, int] = field(default_factory=dict)
    places: dict[Storage, Place] = field(default_factory=dict)
    last_read: dict[tuple[Storage, Relation], int] = field(default_factory=dict)
    last_use: dict[Storage, int] = field(default_factory=dict)
    writes: dict[Storage, list[int]] = field(default_factory=dict)
    lowered: list[Node] = field(default_factory=list)

    def place(self, node: Node) -> Place:
        """Where the (first) result of `node` lies."""
        return self.places[(node, 0)]


def aliasing(graph: Graph, profile: Profile, returned: Container[Node]) -> Aliasing:
    """The aliases of `graph`, once its output node returns no nodes but `returned`."""
    found = Aliasing()
    for index, node in enumerate(graph.nodes):
        found.position[node] = index
        if node.op == "output":
            break
        fresh = Place(frozenset({(node, 0)}))
        if node.op != "call_function":
            found.places[(node, 0)] = fresh
        elif is_lowered_view(node, profile, returned):
            base = found.place(lowered_base(node, profile))
            found.places[(node, 0)] = replace(base, relation=Relation.LOWERED_VIEW_READ)
            found.lowered.append(node)
        else:
            _record(found, node, index, action_of(node))
    return found


def _record(found: Aliasing, node: Node, index: int, action: Action) -> None:
    if action.name == "getitem":
        _record_item(found, node)
        return
    if reads_contents(action.name) and not (action.aliases and not action.writes and not action.maybe):
        # What a copy overwrites it does not look at.
        skipped = 1 if action.contents is Contents.SECOND else 0
        for operand in action.operands[skipped:]:
            for place in _places(found, operand):
                for storage in place.storages:
                    found.last_use[storage] = index
                    found.last_read[(storage, place.relation)] = index
    for i in action.writes:
        for place in _places(found, action.operands[i]):
            for storage in place.storages:
                found.writes.setdefault(storage, []).append(index)
                found.last_use[storage] = index
    found.places[(node, 0)] = Place(frozenset({(node, 0)}))
    for result in {result for result, _ in action.aliases}:
        bases = [
            (i, found.place(action.operands[i]))
            for r, i in action.aliases
            if r == result
            and (action.operands[i], 0) in found.places
            and not is_scalar(action.operands[i].meta.get("val"))
        ]
        if bases:
            found.places[(node, result)] = _alias(node, action, bases)
            if result == ALL:
                found.places[(node, 0)] = found.places[(node, ALL)]


def _places(found: Aliasing, operand: Node) -> list[Place]:
    """Where an operand lies; every result where the operand is a whole list or tuple."""
    value = operand.meta.get("val")
    if not isinstance(value, (list, tuple)):
        place = found.places.get((operand, 0))
        return [place] if place is not None else []
    whole = found.places.get((operand, ALL))
    keys = [(operand, k) for k in range(len(value))]
    return [whole or found.places.get(key) or Place(frozenset({key})) for key in keys]


def _alias(node: Node, action: Action, bases: list[tuple[int, Place]]) -> Place:
    """The place of a result that lies where one of `bases` (operand position and place) does."""
    lowered = any(base.relation is Relation.LOWERED_VIEW_READ for _, base in bases)
    relation = Relation.LOWERED_VIEW_READ if lowered else Relation.VIEW_READ
    if action.maybe or len(bases) > 1:
        storages = frozenset({(node, 0)}).union(*(base.storages for _, base in bases))
        return Place(storages, False, False, relation)
    ((i, base),) = bases
    whole = base.whole and (i in action.writes or same_order(action.name))
    return Place(base.storages, whole, base.certain, relation)


def _record_item(found: Aliasing, node: Node) -> None:
    owner, index = node.args[0], node.args[1]
    assert isinstance(owner, Node)
    value = owner.meta.get("val")
    if isinstance(index, int) and index < 0 and isinstance(value, (list, tuple)):
        index += len(value)
    key = (owner, int(index) if isinstance(index, int) else ALL)
    found.places[(node, 0)] = found.places.get((owner, ALL)) or found.places.get(key) or Place(frozenset({key}))
