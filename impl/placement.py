"""Placing write-backs: what both the reference pass and end placement do.

Each constraint that the rule has bounds the write-backs from below or calls for a clone, each that it lacks is not
looked at. Write-backs that read each other's targets are ordered, and a cycle of them is broken by a clone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import OutputKind
from torch.fx import Graph, Node

from copyproof.impl.aliasing import Aliasing, Place, Storage, aliasing
from copyproof.impl.insertion import insert_clone, insert_copy, mutated, rename_outputs
from copyproof.spec.effects import NO_LOWERING, Profile
from copyproof.spec.graph import graph_of, lowered_base, viewed
from copyproof.spec.rule import Relation, Rule

WriteBackPass: TypeAlias = Callable[[ExportedProgram], tuple[torch.fx.GraphModule, ExportGraphSignature]]
Naming: TypeAlias = Literal["placeholder", "copy_"]
"""What the output node names for a buffer that is copied; for a mutated user input it is always the placeholder, since
the planner reuses the input's memory after its last reader otherwise."""

_READS = (Relation.DIRECT_READ, Relation.VIEW_READ, Relation.LOWERED_VIEW_READ)


@dataclass
class _WriteBack:
    """One target that needs a copy: the placeholder, its source, and the position that the copy comes after."""

    index: int
    target: Node
    source: Node
    place: Place
    bound: int = 0
    clone_source: bool = False
    escapes: list[Node] = field(default_factory=list)


class Placement:
    """One placement of all write-backs of `program`; `run` rewrites its graph.

    Args:
        program: a functional program, or one that already holds in-place operations.
        rule: the ordering constraints and remedies.
        naming: what the output node names for a buffer that is copied.
        profile: how the graph will be lowered; not looked at by a rule without lowered view reads.
        earliest: place each write-back at its earliest legal point; otherwise at the end of the graph.

    Raises:
        ValueError: the signature names a target that no placeholder of the graph stands for; `naming` is no Naming.
    """

    def __init__(
        self, program: ExportedProgram, rule: Rule, naming: Naming, profile: Profile, earliest: bool = True
    ) -> None:
        if naming not in get_args(Naming):
            raise ValueError(f"outputs is {naming!r}, expected one of {', '.join(get_args(Naming))}")
        self.program = program
        self.graph: Graph = graph_of(program.graph_module)
        self.rule = rule
        self.naming = naming
        self.profile = profile if rule.demands(Relation.LOWERED_VIEW_READ) else NO_LOWERING
        self.earliest = earliest
        self.targets = mutated(program)
        self.outputs: list[Any] = list(self.graph.output_node().args[0])  # type: ignore[arg-type]
        mutations = {index for index, _ in self.targets}
        specs = program.graph_signature.output_specs
        self.buffers = {i for i in mutations if specs[i].kind is OutputKind.BUFFER_MUTATION}
        self.user_outputs = [i for i, o in enumerate(self.outputs) if i not in mutations and isinstance(o, Node)]
        self.returned = {self.outputs[i] for i in self.user_outputs}
        self.snapshots: set[Node] = set()

    def run(self) -> tuple[torch.fx.GraphModule, ExportGraphSignature]:
        """Rewrites the graph, and gives it with the signature that names its outputs."""
        self.aliases = self._analyse()
        self.nodes = list(self.graph.nodes)
        self.cursor: dict[int, Node] = {}
        self.settled: dict[Storage, int] = {}
        self.last_placeholder = max((i for i, n in enumerate(self.nodes) if n.op == "placeholder"), default=0)
        write_backs = self._write_backs()
        self._settle_outputs({(w.target, 0) for w in write_backs})
        for write_back in write_backs:
            write_back.bound = self._bound(write_back)
        self._find_escapes(write_backs)
        for group in self._ordered(write_backs):
            self._place(group)
        signature = rename_outputs(self.program, self.outputs)
        self.graph.lint()
        self.program.graph_module.recompile()
        return self.program.graph_module, signature

    def _analyse(self) -> Aliasing:
        found = aliasing(self.graph, self.profile, self.returned)
        # One at a time, since a view of a protected view looks at the clone too.
        while found.lowered and found.writes and self._protect_snapshot(found):
            found = aliasing(self.graph, self.profile, self.returned)
        return found

    def _protect_snapshot(self, found: Aliasing) -> bool:
        """Clones what a lowered view looks at, where writes of the graph itself would show through the view: of the
        first such view. Whether there is one."""
        for view in found.lowered:
            operand = viewed(view)
            if operand not in self.snapshots and self._write_shows(view, found):
                clone = insert_clone(self.graph, view.prev, operand)
                view.replace_input_with(operand, clone)
                self.snapshots.add(clone)
                return True
        return False

    def _write_shows(self, view: Node, found: Aliasing) -> bool:
        """Whether a lowered view would show other contents than its operand had: it is used after its base was written,
        or it is re-based past a returned view, which stays a copy, that was written before."""
        base = lowered_base(view, self.profile)
        passed: list[Node] = []
        while (operand := viewed((view, *passed)[-1])) is not base:
            passed.append(operand)
        # What the view looks at is what its base held when the first one in between was made.
        since = min(found.position[node] for node in (view, *passed))
        later = [w for s in found.place(base).storages for w in found.writes.get(s, ()) if w > since]
        sources = {self.outputs[i] for i, _ in self.targets}
        if later and _last_use(view, found, self.returned | sources) >= later[0]:
            return True
        position = found.position[view]
        return any(n in self.returned and any(w < position for w in found.writes.get((n, 0), ())) for n in passed)

    def _write_backs(self) -> list[_WriteBack]:
        found = []
        for index, target in self.targets:
            source = self.outputs[index]
            place = self.aliases.place(source)
            if place.storages == frozenset({(target, 0)}) and place.certain and place.whole:
                # The planner keeps a user input's memory to the end where its own placeholder is returned, only.
                if place.relation is Relation.LOWERED_VIEW_READ or index not in self.buffers:
                    self.outputs[index] = target
                continue
            if not place.certain:
                source = self._settle(source)
                place = self.aliases.place(source)
            overlaps = (target, 0) in place.storages and self.rule.demands(Relation.OVERLAP)
            found.append(_WriteBack(index, target, source, place, clone_source=overlaps))
        return found

    def _settle(self, value: Node) -> Node:
        """Gives a value that may or may not alias something a storage of its own, as soon as it is final; write-backs
        into what it may alias wait for that."""
        aliases, place = self.aliases, self.aliases.place(value)
        final = max(aliases.position[value], self.last_placeholder)
        for storage in place.storages:
            final = max([final, *aliases.writes.get(storage, ())])
        clone = self._append(final, partial(insert_clone, self.graph, value=value))
        aliases.position[clone] = final
        aliases.places[(clone, 0)] = Place(frozenset({(clone, 0)}))
        for storage in place.storages:
            self.settled[storage] = max(final, self.settled.get(storage, 0))
        return clone

    def _bound(self, write_back: _WriteBack) -> int:
        """The position of the last step that the rule makes this write-back wait for, other copies left aside."""
        aliases, target = self.aliases, (write_back.target, 0)
        if not self.earliest:
            return len(self.nodes) - 2
        bound = self.settled.get(target, 0)
        if self.rule.demands(Relation.PLACEHOLDER):
            bound = max(bound, self.last_placeholder)
        if self.rule.demands(Relation.SOURCE_DEFINITION):
            bound = max(bound, aliases.position[write_back.source])
        if self.rule.demands(Relation.SOURCE_WRITE):
            for storage in write_back.place.storages:
                bound = max([bound, *aliases.writes.get(storage, ())])
        if self.rule.demands(Relation.DIRECT_READ):
            bound = max([bound, *aliases.writes.get(target, ())])
        for relation in _READS:
            if self.rule.demands(relation):
                bound = max(bound, aliases.last_read.get((target, relation), 0))
        return bound

    def _settle_outputs(self, written: set[Storage]) -> None:
        """Clones user outputs that may or may not alias the old contents of what is written back."""
        if not self.rule.demands(Relation.ESCAPE):
            return
        for value in sorted(self.returned, key=lambda node: self.aliases.position[node]):
            place = self.aliases.place(value)
            if not place.certain and place.storages & written:
                self._return_instead(value, self._settle(value))

    def _find_escapes(self, write_backs: Sequence[_WriteBack]) -> None:
        """Gives each user output that would alias old contents to the write-back that must clone it."""
        if not self.rule.demands(Relation.ESCAPE):
            return
        by_target: dict[Storage, _WriteBack] = {(w.target, 0): w for w in write_backs}
        for value in sorted(self.returned, key=lambda node: self.aliases.position[node]):
            for storage in self.aliases.place(value).storages & set(by_target):
                by_target[storage].escapes.append(value)
        for write_back in write_backs:
            if write_back.escapes:
                latest = max(self.aliases.position[value] for value in write_back.escapes)
                write_back.bound = max(write_back.bound, latest, self._end_of_escape(write_back))

    def _return_instead(self, value: Node, clone: Node) -> None:
        """Makes every user output that is `value` return `clone`."""
        for i in self.user_outputs:
            if self.outputs[i] is value:
                self.outputs[i] = clone
        self.returned = (self.returned - {value}) | {clone}

    def _end_of_escape(self, write_back: _WriteBack) -> int:
        """How late a write-back that clones outputs must come, so that its clones cost no more than its source.

        A clone lives to the end. Placed early it pays only where the source's storage dies at the copy, and is as
        large.
        """
        storages = write_back.place.storages
        users = [self.aliases.place(value) for value in self.returned]
        users += [self.aliases.place(self.outputs[i]) for i, _ in self.targets if i != write_back.index]
        dies = all(node.op == "call_function" for node, _ in storages) and not any(
            place.storages & storages for place in users
        )
        if dies and _nbytes(write_back.source) >= sum(_nbytes(value) for value in write_back.escapes):
            return max(self.aliases.last_use.get(storage, 0) for storage in storages)
        return len(self.nodes) - 2

    def _ordered(self, write_backs: Sequence[_WriteBack]) -> list[list[_WriteBack]]:
        """The write-backs in an order in which each comes after those that read its target's old contents; those of
        a cycle together in one group, the one that must read a clone last."""
        if not self.rule.demands(Relation.COPY_READ):
            return [[w] for w in write_backs]
        by_target = {(w.target, 0): w for w in write_backs}
        reads = {
            w.index: [by_target[s] for s in w.place.storages if s in by_target and by_target[s] is not w]
            for w in write_backs
        }
        waiting = {w.index: 0 for w in write_backs}
        for read in reads.values():
            for other in read:
                waiting[other.index] += 1
        ready = [w for w in write_backs if not waiting[w.index]]
        left = {w.index: w for w in write_backs}
        ordered: list[list[_WriteBack]] = []
        while left:
            group = [ready.pop(0)] if ready else self._cycle(next(iter(left.values())), reads)
            ordered.append(group)
            slot = max(w.bound for w in group)
            for write_back in group:
                write_back.bound = slot
                del left[write_back.index]
            for write_back in group:
                for other in reads[write_back.index]:
                    other.bound = max(other.bound, slot)
                    waiting[other.index] -= 1
                    if not waiting[other.index] and other.index in left:
                        ready.append(other)
        return ordered

    def _cycle(self, start: _WriteBack, reads: dict[int, list[_WriteBack]]) -> list[_WriteBack]:
        """The cycle that `start` leads into, beginning with the target whose old contents cost least to clone."""
        path = [start]
        while (following := reads[path[-1].index][0]) not in path:
            path.append(following)
        cycle = path[path.index(following) :]
        cheapest = min(range(len(cycle)), key=lambda i: _nbytes(cycle[i].source))
        if self.rule.demands(Relation.CYCLE):
            cycle[cheapest].clone_source = True
        return cycle[cheapest + 1 :] + cycle[: cheapest + 1]

    def _place(self, group: list[_WriteBack]) -> None:
        """Inserts the copies of one group at its slot: the clones first, then the copies in order."""
        for write_back in group:
            for value in write_back.escapes:
                clone = self._append(write_back.bound, partial(insert_clone, self.graph, value=value))
                self._return_instead(value, clone)
            if write_back.clone_source:
                write_back.source = self._append(
                    write_back.bound, partial(insert_clone, self.graph, value=write_back.source)
                )
        for write_back in group:
            insert = partial(insert_copy, self.graph, target=write_back.target, source=write_back.source)
            copy = self._append(write_back.bound, insert)
            named = self.naming if write_back.index in self.buffers else "placeholder"
            self.outputs[write_back.index] = write_back.target if named == "placeholder" else copy

    def _append(self, position: int, insert: Callable[[Node], Node]) -> Node:
        """Inserts a node at the end of what already stands at the slot after `position`."""
        node = insert(self.cursor.get(position, self.nodes[position]))
        self.cursor[position] = node
        return node


def _last_use(view: Node, found: Aliasing, returned: set[Any]) -> int:
    """The last position that looks at the value of `view`, through its aliases too; past the end if it is returned."""
    last, seen, frontier = 0, {view}, [view]
    while frontier:
        node = frontier.pop()
        if node in returned:
            return len(found.position)
        for user in node.users:
            last = max(last, found.position.get(user, len(found.position)))
            place = found.places.get((user, 0))
            if user not in seen and place and place.storages & found.place(view).storages:
                seen.add(user)
                frontier.append(user)
    return last


def _nbytes(node: Node) -> int:
    """Bytes of a node's value, symbolic sizes at their hints."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    total = value.element_size()
    for size in value.shape:
        total *= size.node.hint or 1 if isinstance(size, torch.SymInt) else size
    return int(total)
