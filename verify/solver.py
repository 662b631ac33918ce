"""The solver: queries over uninterpreted contents and integers, asked one obligation at a time.

An obligation is proved when its negation, together with the definitions that it can depend on, has no model. Contents
are an uninterpreted sort, operators uninterpreted functions, so a model is a way to choose operators and inputs for
which the obligation fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import z3

from copyproof.spec.errors import BadInput
from copyproof.verify.trace import Content, Definition

_LONGEST_MS = 2**31 - 1


@dataclass(frozen=True)
class Differ:
    """Two contents are not equal."""

    left: Content
    right: Content


@dataclass(frozen=True)
class Number:
    """An integer fact of the programs (a position, a count, live bytes), by name."""

    name: str
    value: int


@dataclass(frozen=True)
class Above:
    """One number is greater than another."""

    left: Number
    right: Number


@dataclass(frozen=True)
class Case:
    """One way to break an obligation: all of `parts` hold. `about` says what it stands for."""

    about: str
    parts: tuple[Differ | Above, ...]

    @property
    def contents(self) -> list[Content]:
        """The contents that it speaks of."""
        return [c for part in self.parts if isinstance(part, Differ) for c in (part.left, part.right)]

    @property
    def numbers(self) -> list[Number]:
        """The integer facts that it speaks of."""
        return [n for part in self.parts if isinstance(part, Above) for n in (part.left, part.right)]


@dataclass(frozen=True)
class Answer:
    """What the solver said: no case can hold (`unsat`), some can (`sat`, with their indices), or it gave up."""

    status: str
    holding: tuple[int, ...]
    seconds: float


class Theory:
    """Contents and their definitions, shared by all queries about one pair of programs.

    Args:
        definitions: every defined content; a content that is not among them is free.
        timeout: seconds for each query.
        keep: a folder to keep each query in, as an SMT-LIB 2 file; None to keep none.
    """

    def __init__(self, definitions: Mapping[Content, Definition], timeout: float, keep: Path | None = None) -> None:
        self.definitions = definitions
        self.keep = keep
        self.sort = z3.DeclareSort("Contents")
        self.constants: dict[Content, z3.ExprRef] = {}
        self.functions: dict[tuple[str, int], z3.FuncDeclRef] = {}
        self.asserted: set[Content] = set()
        self.equations: dict[Content, z3.BoolRef] = {}
        self.solver = z3.Solver()
        if not timeout > 0:
            raise BadInput(f"the timeout is {timeout}, expected a number of seconds above 0")
        self.solver.set("timeout", max(1, int(min(timeout * 1000, _LONGEST_MS))))

    def ask(self, name: str, cases: Iterable[Case]) -> Answer:
        """Whether any of `cases` can hold. The query is the definitions in their cone of influence, and that one of
        the cases holds; without cases it is `false`.

        Args:
            name: for the kept file.
            cases: the ways to break the obligation.
        """
        started = time.perf_counter()
        listed = list(cases)
        cone = self.cone(content for case in listed for content in case.contents)
        for content in cone:
            if content not in self.asserted:
                self.asserted.add(content)
                self.solver.add(self._equation(content))
        self.solver.push()
        self.solver.add(self._facts(listed))
        selectors = [z3.Bool(f"case!{i}") for i in range(len(listed))]
        for selector, case in zip(selectors, listed, strict=True):
            self.solver.add(selector == z3.And([self._part(part) for part in case.parts]))
        self.solver.add(z3.Or(selectors))
        if self.keep is not None:
            self._write(name, cone, listed)
        result = self.solver.check()
        holding: tuple[int, ...] = ()
        if result == z3.sat:
            holding = self._holding(selectors)
        self.solver.pop()
        return Answer(str(result), holding, time.perf_counter() - started)

    def _holding(self, selectors: list[z3.BoolRef]) -> tuple[int, ...]:
        """All cases that can hold, not just those of the first model."""
        model = self.solver.model()
        found = {i for i, s in enumerate(selectors) if z3.is_true(model.eval(s))}
        for i, selector in enumerate(selectors):
            if i not in found and self.solver.check(selector) == z3.sat:
                found.add(i)
        return tuple(sorted(found))

    def cone(self, roots: Iterable[Content]) -> list[Content]:
        """The defined contents that `roots` can depend on, operands before what uses them."""
        ordered: list[Content] = []
        seen: set[Content] = set()
        stack = [(root, False) for root in roots]
        while stack:
            content, done = stack.pop()
            if done:
                ordered.append(content)
            elif content not in seen and content in self.definitions:
                seen.add(content)
                stack.append((content, True))
                stack.extend((operand, False) for operand in self.definitions[content].operands)
        return ordered

    def leaves(self, roots: Iterable[Content]) -> set[Content]:
        """The undefined contents that `roots` can depend on."""
        listed = list(roots)
        found = {c for c in listed if c not in self.definitions}
        for content in self.cone(listed):
            found.update(o for o in self.definitions[content].operands if o not in self.definitions)
        return found

    def _constant(self, content: Content) -> z3.ExprRef:
        if content not in self.constants:
            self.constants[content] = z3.Const(content, self.sort)
        return self.constants[content]

    def _equation(self, content: Content) -> z3.BoolRef:
        if content not in self.equations:
            definition = self.definitions[content]
            key = (definition.symbol, len(definition.operands))
            if key not in self.functions:
                self.functions[key] = z3.Function(definition.symbol, *[self.sort] * (key[1] + 1))
            operands = [self._constant(o) for o in definition.operands]
            self.equations[content] = self._constant(content) == self.functions[key](*operands)
        return self.equations[content]

    def _part(self, part: Differ | Above) -> z3.BoolRef:
        if isinstance(part, Differ):
            return self._constant(part.left) != self._constant(part.right)
        return z3.Int(part.left.name) > z3.Int(part.right.name)

    def _facts(self, cases: list[Case]) -> list[z3.BoolRef]:
        """What the numbers that the cases speak of are."""
        facts: dict[str, int] = {}
        for number in (n for case in cases for n in case.numbers):
            assert facts.setdefault(number.name, number.value) == number.value, f"two values for {number.name}"
        return [z3.Int(name) == value for name, value in facts.items()]

    def _write(self, name: str, cone: list[Content], cases: list[Case]) -> None:
        assert self.keep is not None
        query = z3.Solver()
        query.add([self._equation(content) for content in cone])
        query.add(self._facts(cases))
        query.add(z3.Or([z3.And([self._part(part) for part in case.parts]) for case in cases]))
        head = f"; {name}: unsat means proved\n"
        (self.keep / f"{name}.smt2").write_text(head + query.to_smt2())
