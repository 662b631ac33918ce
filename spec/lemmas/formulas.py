"""Formulas with readings: what lemmas are written in.

Every premise and goal is a `Fact`: a formula of SMT-LIB 2 and how it reads. A `Query` proves a goal if its premises
and the goal's negation have no model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

SORTS = ("Step", "Value", "Target", "Cell", "Datum")
"""A cell is one element of memory, a datum what it can hold."""

_LETTERS = {**dict.fromkeys("sxyzp", "Step"), **dict.fromkeys("vwb", "Value"), **dict.fromkeys("tou", "Target")}
_LETTERS |= dict.fromkeys("cd", "Cell")


def sorted_letters(letters: str) -> str:
    return " ".join(f"({letter} {_LETTERS[letter]})" for letter in letters.split())


def formula_of(text: str) -> str:
    """SMT-LIB 2 text in which bound variables have sorts, of text in which their letters say the sort: s, x, y, z, p
    for Step; v, w, b for Value; t, o, u for Target; c, d for Cell."""
    found = re.sub(r"\((forall|exists) \(([a-z ]+)\)", lambda m: f"({m[1]} ({sorted_letters(m[2])})", text)
    return " ".join(found.split())


@dataclass(frozen=True)
class Fact:
    """A formula, and what it says."""

    name: str
    reading: str
    formula: str

    @property
    def opened(self) -> tuple[str, str]:
        """A formula `for all xs, body` as declarations of the xs as constants, and the body; ValueError for others."""
        found = re.fullmatch(r"\(forall \(((?:\(\w+ \w+\) ?)+)\) (.*)\)", self.formula)
        if found is None:
            raise ValueError(f"{self.name} is no statement about all of something")
        constants = re.findall(r"\((\w+) (\w+)\)", found[1])
        return "".join(f"(declare-const {name} {sort})\n" for name, sort in constants), found[2]


@dataclass(frozen=True)
class Symbol:
    """A function or predicate of the vocabulary, what it says, and its declaration in SMT-LIB 2: a definition, where it
    is an abbreviation."""

    name: str
    reading: str
    declaration: str


@dataclass(frozen=True)
class Query:
    """The goal follows from the premises, if their conjunction with its negation has no model.

    Attributes:
        lemma: L1, L2 or L3.
        name: for reports.
        vocabulary: what the formulas speak of.
        premises: what is assumed.
        goal: what is to be proved.
    """

    lemma: str
    name: str
    vocabulary: tuple[Symbol, ...]
    premises: tuple[Fact, ...]
    goal: Fact

    @property
    def text(self) -> str:
        """The whole query in SMT-LIB 2, its readings as comments: `unsat` means that the goal follows."""
        goal = f"; to prove: {self.goal.reading}\n(assert (not {self.goal.formula}))\n"
        return f"; {self.lemma}, {self.name}: unsat means proved\n{self.theory}{goal}(check-sat)\n"

    @property
    def premises_text(self) -> str:
        """The premises alone: `sat` means that they do not contradict each other."""
        return f"; {self.lemma}, {self.name}: sat means that the premises agree\n{self.theory}(check-sat)\n"

    @property
    def theory(self) -> str:
        """Declarations and premises, without a question."""
        declared = "".join(f"; {symbol.name}: {symbol.reading}\n{symbol.declaration}\n" for symbol in self.vocabulary)
        sorts = "".join(f"(declare-sort {sort} 0)\n" for sort in SORTS)
        premises = "".join(f"; {fact.name}: {fact.reading}\n(assert {fact.formula})\n" for fact in self.premises)
        return f"(set-logic UF)\n{sorts}{declared}{premises}"

    def without(self, premise: str) -> Query:
        """This query less one premise.

        Raises:
            KeyError: it has no premise of that name.
        """
        if premise not in {fact.name for fact in self.premises}:
            raise KeyError(f"no premise {premise!r} in {self.lemma}, {self.name}")
        return replace(self, premises=tuple(fact for fact in self.premises if fact.name != premise))


def facts(text: str, **names: str) -> tuple[Fact, ...]:
    """The facts of a text: for each a line `name: reading`, and its formula, indented; `names` fill in braces."""
    return tuple(Fact(head.split(": ", 1)[0], head.split(": ", 1)[1], body) for head, body in _entries(text, names))


def symbols(text: str, **names: str) -> tuple[Symbol, ...]:
    """The symbols of a text: for each a line `name (argument sorts) result: reading`. Where an indented definition
    follows, the arguments are letters."""
    found = []
    for head, body in _entries(text, names):
        parts = re.fullmatch(r"(\w+) \(([\w ]*)\) (\w+): (.*)", head)
        assert parts is not None, head
        name, arguments, result, reading = parts.groups()
        kind, arguments = ("define", sorted_letters(arguments)) if body else ("declare", arguments)
        found.append(Symbol(name, reading, f"({kind}-fun {name} ({arguments}) {result}{body and ' '}{body})"))
    return tuple(found)


def _entries(text: str, names: dict[str, str]) -> list[tuple[str, str]]:
    filled = re.sub(r"\{(\w+)\}", lambda m: names[m[1]], text)
    entries = re.split(r"\n(?=\S)", filled.strip())
    return [(head, formula_of(body)) for head, _, body in (entry.partition("\n") for entry in entries)]


def combined(name: str, parts: tuple[Fact, ...]) -> Fact:
    """All `parts` as one fact; what is so if there are none."""
    if not parts:
        return Fact(name, "nothing is asked", "true")
    return Fact(name, "; ".join(part.reading for part in parts), f"(and {' '.join(part.formula for part in parts)})")
