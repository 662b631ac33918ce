"""Where a lowered program comes apart from its model, in the words of the graph.

Contents of the program that are also contents of the model get the name of the model's node; what a call reads, and
should have read, is found by going down from a result that differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from copyproof.verify.evaluate import SELECT
from copyproof.verify.execution import Execution
from copyproof.verify.kernels import REFUSED
from copyproof.verify.trace import Content, Definition, Trace
from copyproof.verify.verdicts import Conflict


@dataclass(frozen=True)
class Difference:
    """Why two contents are not the same, whether that is certain, and the conflict behind it, if it was found."""

    reason: str
    certain: bool
    conflict: Conflict | None = None


class Differences:
    """Explains differences between what a model means (`functional`) and what a program does (`execution`).

    `constants` names the model's constants by their contents.
    """

    def __init__(self, functional: Trace, execution: Execution, constants: Mapping[Content, str]) -> None:
        self.constants = constants
        self.execution = execution
        self.definitions = {**functional.definitions, **execution.definitions}
        self.unknown = {**functional.unknown, **execution.unknown}
        self.of_model = {definition.symbol for definition in functional.definitions.values()}
        self.of_program = {definition.symbol for definition in execution.definitions.values()}
        self.alike: dict[Content, Content] = {}
        known: dict[tuple[str, tuple[Content, ...]], Content] = {}
        for name, definition in self.definitions.items():
            key = (definition.symbol, tuple(self.alike.get(o, o) for o in definition.operands))
            self.alike[name] = known.setdefault(key, name)
        self.doubtful: set[Content] = set(self.unknown)
        for name, definition in self.definitions.items():
            if any(operand in self.doubtful for operand in definition.operands):
                self.doubtful.add(name)
        self.nodes = {
            label: self._node(self.alike[name])
            for name, label in execution.labels.items()
            if self.alike[name].startswith("F!")
        }

    def between(self, what: str, expected: Content, found: Content) -> Difference:
        """Why `what` holds `found` where it should hold `expected`. It is certain where both sides know both operators,
        and not where one side spells an operator as the other never does."""
        if found in self.doubtful or expected in self.doubtful:
            return Difference(f"{what} is not known: {self._doubt([found, expected])}", False)
        seen: set[tuple[Content, Content]] = set()
        frontier = [("", expected, found)]
        told: Difference | None = None
        doubt: Difference | None = None
        while frontier:
            reader, a, b = frontier.pop()
            if (a, b) in seen or self.alike.get(a, a) == self.alike.get(b, b):
                continue
            seen.add((a, b))
            left, right = self.definitions.get(a), self.definitions.get(b)
            strange = self._strange(left, right)
            if strange:
                return Difference(f"{what} is not known: {strange}", False)
            if left and right and left.symbol == right.symbol and len(left.operands) == len(right.operands):
                label = reader if left.symbol == SELECT else self.execution.labels.get(b, "")
                pairs = zip(left.operands, right.operands, strict=True)
                frontier.extend((label, x, y) for x, y in pairs)
            elif self._computed_alike(a, b):
                text = f"{what} is not known: {self._called(a)} and {self._called(b)} compute the same in other shapes"
                doubt = Difference(text, False)
            elif told is None:
                told = Difference(self._told(what, reader, a, b), True, self._conflict(reader, a, b))
        return told or doubt or Difference(f"{what} differs", True)

    def named(self, text: str) -> str:
        """A text with the model's node before each call that computes what a node of the model does."""

        def name(found: re.Match[str]) -> str:
            node = self.nodes.get(found[0])
            return f"{node} ({found[1]}, {found[2]})" if node else found[0]

        return _CALL.sub(name, text)

    def renamed(self, conflict: Conflict) -> Conflict:
        """A conflict with the model's nodes in it."""
        return replace(
            conflict,
            write=self.named(conflict.write),
            read=self.named(conflict.read),
            last_write=self.named(conflict.last_write),
            excerpt=tuple(self.named(line) for line in conflict.excerpt),
        )

    def _told(self, what: str, reader: str, expected: Content, found: Content) -> str:
        does, should = self._called(found), self._called(expected)
        if not reader:
            return f"{what} comes from {does} where it should come from {should}"
        return f"{what} is wrong: {self.named(reader)} reads {does} where it should read {should}"

    def _conflict(self, reader: str, expected: Content, found: Content) -> Conflict | None:
        """The triple behind a stale read: the bytes that it saw, who wrote them last, and who should have."""
        labels = [reader] if reader else ["the output", "the next call"]
        seen = self.alike.get(found, found)
        read = next((r for r in self.execution.reads if r.label in labels and seen in self._ways(r.content)), None)
        if read is None:
            return None
        memory = self.execution.arenas[read.arena]
        wanted = self.alike.get(expected, expected)
        near = [o for o in [*memory.past, *memory.owned] if o.start < read.end and read.start < o.end]
        before = [o for o in near if o.until is not None and wanted in self._ways(o.content)]
        over = [o for o in near if o.start == read.start and seen in self._ways(o.content)]
        if not before or not over:
            return None
        conflict = Conflict(
            f"bytes {read.start} to {read.end} of arena {read.arena}",
            over[-1].writer,
            read.label,
            before[-1].writer,
            f"{read.label} must come before {over[-1].writer}, or the two values need bytes of their own",
            tuple(memory.picture(read.start, read.end, read.call)),
        )
        return replace(self.renamed(conflict), right=self.named(conflict.right))

    def _ways(self, content: Content) -> set[Content]:
        """What a content may be, by the branches that were taken, as the model names it."""
        found, frontier = set(), [content]
        while frontier:
            one = frontier.pop()
            definition = self.definitions.get(one)
            if definition is not None and definition.symbol == SELECT:
                frontier.extend(definition.operands[1:])
            found.add(self.alike.get(one, one))
        return found

    def _computed_alike(self, a: Content, b: Content) -> bool:
        """Whether two contents are computed by the same operators out of the same contents, in other shapes at most:
        where the operators go element by element, they are equal."""
        seen: set[tuple[Content, Content]] = set()
        frontier = [(a, b)]
        while frontier:
            one, other = pair = frontier.pop()
            if pair in seen or self.alike.get(one, one) == self.alike.get(other, other):
                continue
            seen.add(pair)
            left, right = self.definitions.get(one), self.definitions.get(other)
            if left is None or right is None or len(left.operands) != len(right.operands):
                return False
            if _less_shapes(left.symbol) != _less_shapes(right.symbol):
                return False
            frontier.extend(zip(left.operands, right.operands, strict=True))
        return True

    def _strange(self, left: Definition | None, right: Definition | None) -> str:
        """How one side spells an operator as the other never does; empty where both know both."""
        if left is None or right is None or left.symbol == right.symbol:
            return ""
        if REFUSED in left.symbol or REFUSED in right.symbol:
            return ""
        if left.symbol in self.of_program and right.symbol in self.of_model:
            return ""
        return (
            f"{left.symbol} of the model has no like in the file, which has {right.symbol}; "
            "was the file lowered with other options of to_edge?"
        )

    def _doubt(self, contents: list[Content]) -> str:
        """Why one of these contents is not known."""
        frontier, seen = list(contents), set(contents)
        while frontier:
            content = frontier.pop(0)
            if content in self.unknown:
                return self.unknown[content]
            definition = self.definitions.get(content)
            for operand in definition.operands if definition else ():
                if operand in self.doubtful and operand not in seen:
                    seen.add(operand)
                    frontier.append(operand)
        return "it comes from something unknown"

    def _called(self, content: Content) -> str:
        like = self.alike.get(content, content)
        if like.startswith("F!"):
            return self._node(like)
        definition = self.definitions.get(content)
        if definition is not None:
            return f"a result of {definition.symbol.split('(', 1)[0].split('<', 1)[0]}"
        kind, _, name = content.partition("!")
        if kind == "refused":
            call, _, refusal = name.partition("!")
            return f"nothing, since {self.named(call)} stops the method: {refusal};"
        return {
            "state": f"the old contents of {name!r}",
            "in": f"input {name!r}",
            "const": self._constant(content),
        }.get(kind, "bytes that hold something else")

    def _constant(self, content: Content) -> str:
        name = self.constants.get(content)
        return f"the constant {name!r}" if name else "a constant that the model has not"

    @staticmethod
    def _node(content: Content) -> str:
        """`add_3` of the content `F!add_3`."""
        return content.split("!", 1)[1].rstrip("'").replace("!", ".")


def _less_shapes(symbol: str) -> tuple[str, str]:
    """An operator with its attributes, and the element types that it takes and gives."""
    call, _, types = symbol.partition("<")
    return call, re.sub(r"\[[^\]]*\]", "", types)


_CALL = re.compile(r"(call \d+) \(([\w:]+)\)")
