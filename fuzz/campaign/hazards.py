"""Which hazards a program has, by kind: what a campaign is steered towards, and what its coverage counts."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from copyproof.fuzz.programs.operations import OPERATIONS, Effect
from copyproof.fuzz.programs.stateful import Place, Stateful
from copyproof.spec.effects import EXECUTORCH
from copyproof.spec.graph import is_lowered_view, lowered_base
from copyproof.spec.signature import mutated_placeholder


def hazards_of_module(module: Stateful) -> set[str]:
    """The hazards that a module's steps show."""
    found = set()
    first = len(module.holders)
    for step in module.steps:
        operation = OPERATIONS[step.name]
        if operation.effect is Effect.WRITE:
            into = step.operands[0]
            if into >= first:
                view = OPERATIONS[module.steps[into - first].name].effect is Effect.ALIAS
                found.add("write through a view" if view else "write into a temporary")
            else:
                found.add(f"{module.holders[into].place.name.lower()} written")
            if step.name in ("row_", "put_", "head_"):
                found.add("write at an index")
            if operation.registers:
                found.add("write by a custom operator")
        if step.name == "copy_":
            a, b = step.operands
            if a < first and b < first:
                pair = {module.holders[a].place, module.holders[b].place}
                found.add("state copied whole into itself" if a == b else "one holder copied whole into another")
                if pair == {Place.BUFFER, Place.INPUT}:
                    found.add("copies between buffer and user input")
        if step.name in ("cond", "map"):
            found.add(step.name)
    if any(holder.sizes for holder in module.holders):
        found.add("sizes that vary")
    if any(holder.counting for holder in module.holders):
        found.add("a buffer that does not start at zero")
    if len(set(module.outputs)) < len(module.outputs):
        found.add("one value returned twice")
    if any(output < first for output in module.outputs):
        found.add("a holder returned")
    return found


def hazards_of_graph(program: ExportedProgram) -> tuple[set[str], int]:
    """The hazards of a program before its write-backs are placed, and over how many steps, at most, old contents are
    still read once the new value is there."""
    found: set[str] = set()
    furthest = 0
    graph = program.graph
    output = graph.output_node()
    values: list[Any] = list(output.args[0])
    specs = program.graph_signature.output_specs
    targets = [mutated_placeholder(spec, program.graph_signature) for spec in specs]
    place = {node: i for i, node in enumerate(graph.nodes)}
    by_name = {node.name: node for node in graph.nodes}
    returned = {v for v, target in zip(values, targets, strict=True) if target is None}

    def root(node: Node) -> Node:
        while node.op == "call_function" and is_lowered_view(node, EXECUTORCH, returned):
            node = lowered_base(node, EXECUTORCH)
        return node

    news = {t: value for value, t in zip(values, targets, strict=True) if t is not None}
    mutated = {by_name[t] for t in news}
    for value in returned:
        if isinstance(value, Node) and root(value) in mutated:
            found.add("old contents returned")
        if value in news.values():
            found.add("a new value returned")
    if len(set(news.values())) < len(news):
        found.add("one source for two targets")
    for name, value in news.items():
        if not isinstance(value, Node):
            continue
        target, source = by_name[name], root(value)
        if source is target:
            found.add("a source that is its own target")
        elif source in mutated:
            found.add("a source that is another target")
            back = news[source.name]
            if isinstance(back, Node) and root(back) is target:
                found.add("a cycle of sources")
        for node in graph.nodes:
            for operand in node.all_input_nodes:
                if node is output or place[node] <= place[value] or root(operand) is not target:
                    continue
                furthest = max(furthest, place[node] - place[value])
                found.add("a late read of old contents" + ("" if operand is target else ", through a lowered view"))
    return found, furthest


class Branches:
    """The branches that a pass took: pairs of lines of its own module, and of the modules of its package."""

    def __init__(self, write_back_pass: Callable[[Any], Any]) -> None:
        module = inspect.getmodule(write_back_pass) or inspect.getmodule(type(write_back_pass))
        self._package = module.__name__.rpartition(".")[0] or module.__name__ if module is not None else ""
        self.taken: set[str] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within this context the branches taken are gathered."""
        last: dict[int, int] = {}

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            name = frame.f_globals.get("__name__", "")
            if not name.startswith(self._package):
                return None
            key = id(frame)
            if event == "line":
                self.taken.add(f"{name.rpartition('.')[2]}:{last.get(key, 0)}-{frame.f_lineno}")
                last[key] = frame.f_lineno
            elif event == "return":
                last.pop(key, None)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)
