"""Two solvers that decide one SMT-LIB 2 text each in its own way, and whether they must: the decidable fragment.

Z3 also gives models of a given size, as plain data.
"""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import z3

from copyproof.spec.errors import BadInput

Status = Literal["unsat", "sat", "unknown"]
_FIRST_TURN = 2.0
_STATUSES: dict[str, Status] = {"unsat": "unsat", "sat": "sat"}


@dataclass(frozen=True)
class Decision:
    """What a solver said, and how long it took to."""

    solver: str
    status: Status
    seconds: float


@dataclass(frozen=True)
class Model:
    """A model as plain data.

    Attributes:
        elements: the elements of each sort, by name.
        tables: for each function and predicate, its value for each tuple of elements.
    """

    elements: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, Mapping[tuple[str, ...], Any]]

    def __call__(self, function: str, *arguments: str) -> Any:
        """The value of `function`: the name of an element, or a bool."""
        return self.tables[function][arguments]


def by_z3(text: str, timeout: float) -> Decision:
    """What Z3 says of an SMT-LIB 2 text, within `timeout` seconds."""
    solver = z3.Solver(ctx=z3.Context())
    solver.set("timeout", max(1, int(timeout * 1000)))
    solver.from_string(text)
    started = time.perf_counter()
    status = str(solver.check())
    return Decision("z3", _STATUSES.get(status, "unknown"), time.perf_counter() - started)


def by_cvc5(text: str, timeout: float) -> Decision:
    """What cvc5 says of an SMT-LIB 2 text, within `timeout` seconds: by turns it instantiates quantifiers, which is how
    it refutes, and looks for finite models, ever longer.

    Raises:
        BadInput: cvc5 is not installed.
    """
    started, turn = time.perf_counter(), _FIRST_TURN
    status: Status = "unknown"
    while status == "unknown" and (left := timeout - (time.perf_counter() - started)) > 0:
        for models in ("false", "true"):
            status = _cvc5_status(
                text, {"finite-model-find": models, "tlimit-per": str(int(1000 * min(turn, left)) + 1)}
            )
            if status != "unknown":
                break
        turn *= 4
    return Decision("cvc5", status, time.perf_counter() - started)


def _cvc5_status(text: str, options: dict[str, str]) -> Status:
    try:
        cvc5 = importlib.import_module("cvc5")
    except ImportError as error:
        raise BadInput(
            "cvc5 is not installed, and a rule is proved only if it agrees with Z3; pip install copyproof[prove]"
        ) from error
    solver = cvc5.Solver(cvc5.TermManager())
    for option, value in options.items():
        solver.setOption(option, value)
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "query")
    answer = ""
    while not (command := parser.nextCommand()).isNull():
        answer += command.invoke(solver, parser.getSymbolManager())
    return _STATUSES.get(answer.strip(), "unknown")


def finite_model(text: str, sizes: Mapping[str, int], timeout: float) -> Model | Literal["unsat", "unknown"]:
    """A model of an SMT-LIB 2 text whose sorts have as many elements as `sizes` says, by Z3, quantifiers written out.

    Args:
        text: may speak of the elements, which are the constants `Step!0`, `Step!1` and so on.
        sizes: the number of elements of each sort that is quantified over.
        timeout: in seconds.
    """
    context = z3.Context()
    names = {sort: tuple(f"{sort}!{i}" for i in range(size)) for sort, size in sizes.items()}
    constants = "".join(f"(declare-const {name} {sort})\n" for sort, listed in names.items() for name in listed)
    split = text.index("\n", text.rindex("(declare-sort")) + 1
    formulas = z3.parse_smt2_string(text[:split] + constants + text[split:], ctx=context)
    functions = {f.name(): f for formula in formulas for f in _functions(formula)}
    found = {sort: [z3.Const(name, z3.DeclareSort(sort, context)) for name in names[sort]] for sort in sizes}
    solver = z3.Solver(ctx=context)
    solver.set("timeout", max(1, int(timeout * 1000)))
    for listed in found.values():
        if len(listed) > 1:
            solver.add(z3.Distinct(*listed))
    solver.add([_written_out(formula, found) for formula in formulas])
    terms = {name: _terms(function, found) for name, function in functions.items() if "!" not in name}
    for table in terms.values():
        for term in table.values():
            if (sort := term.sort().name()) in found:
                solver.add(z3.Or([term == element for element in found[sort]]))
    status = solver.check()
    if status != z3.sat:
        return "unsat" if status == z3.unsat else "unknown"
    model = solver.model()
    known = {str(model.eval(e, model_completion=True)): str(e) for listed in found.values() for e in listed}
    tables = {name: {key: _plain(model, term, known) for key, term in table.items()} for name, table in terms.items()}
    return Model(names, tables)


def _plain(model: z3.ModelRef, term: z3.ExprRef, known: dict[str, str]) -> Any:
    value = model.eval(term, model_completion=True)
    return z3.is_true(value) if z3.is_bool(value) else known.get(str(value), str(value))


def _terms(function: z3.FuncDeclRef, elements: dict[str, list[z3.ExprRef]]) -> dict[tuple[str, ...], z3.ExprRef]:
    """The function applied to all elements, by their names."""
    domains = [elements[function.domain(i).name()] for i in range(function.arity())]
    return {tuple(str(e) for e in chosen): function(*chosen) for chosen in itertools.product(*domains)}


def _written_out(formula: z3.ExprRef, elements: dict[str, list[z3.ExprRef]]) -> z3.ExprRef:
    """The formula with conjunctions and disjunctions over all elements for its quantifiers."""
    if z3.is_quantifier(formula):
        domains = [elements[formula.var_sort(i).name()] for i in range(formula.num_vars())]
        bodies = [z3.substitute_vars(formula.body(), *reversed(chosen)) for chosen in itertools.product(*domains)]
        cases = [_written_out(body, elements) for body in bodies]
        return z3.And(cases) if formula.is_forall() else z3.Or(cases)
    if not _has_quantifier(formula):
        return formula
    return formula.decl()(*[_written_out(part, elements) for part in formula.children()])


def _has_quantifier(formula: z3.ExprRef) -> bool:
    return z3.is_quantifier(formula) or any(_has_quantifier(part) for part in formula.children())


def _functions(formula: z3.ExprRef) -> set[z3.FuncDeclRef]:
    """The uninterpreted functions, predicates and constants of a formula."""
    if z3.is_quantifier(formula):
        return _functions(formula.body())
    found = {f for part in formula.children() for f in _functions(part)}
    if z3.is_app(formula) and formula.decl().kind() == z3.Z3_OP_UNINTERPRETED:
        found.add(formula.decl())
    return found


def fragment(text: str) -> str | None:
    """Why an SMT-LIB 2 text is not in the fragment that the solvers decide, or None if it is.

    The fragment: uninterpreted sorts, and no way back from a sort to itself by the edges from the arguments of a
    function to its result, and from what is quantified universally to the existentials under it (negations pushed in).
    Only finitely many ground terms can then be made, so that there is a finite model or a finite refutation.
    """
    edges: dict[str, set[str]] = {}
    for formula in z3.parse_smt2_string(text, ctx=z3.Context()):
        for function in _functions(formula):
            for sort in (function.range(), *(function.domain(i) for i in range(function.arity()))):
                if sort.kind() not in (z3.Z3_UNINTERPRETED_SORT, z3.Z3_BOOL_SORT):
                    return f"{function.name()} speaks of {sort.name()}, which is interpreted"
            if function.range().kind() != z3.Z3_BOOL_SORT:
                for i in range(function.arity()):
                    edges.setdefault(function.domain(i).name(), set()).add(function.range().name())
        _alternations(formula, True, frozenset(), edges)
    for sort in edges:
        if sort in _reached(sort, edges):
            return f"terms of sort {sort} can be made of terms of sort {sort} without end"
    return None


def _reached(start: str, edges: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    frontier = [start]
    while frontier:
        new = edges.get(frontier.pop(), set()) - reached
        reached |= new
        frontier += new
    return reached


def _alternations(formula: z3.ExprRef, positive: bool, above: frozenset[str], edges: dict[str, set[str]]) -> None:
    """Adds edges from the universal sorts `above` to each existential in `formula`, which stands under an even number
    of negations if `positive`."""
    if not _has_quantifier(formula):
        return
    if z3.is_quantifier(formula):
        sorts = {formula.var_sort(i).name() for i in range(formula.num_vars())}
        if formula.is_forall() == positive:
            above |= sorts
        else:
            for sort in above:
                edges.setdefault(sort, set()).update(sorts)
        _alternations(formula.body(), positive, above, edges)
        return
    for i, part in enumerate(formula.children()):
        for polarity in _polarities(formula, i, positive):
            _alternations(part, polarity, above, edges)


def _polarities(formula: z3.ExprRef, i: int, positive: bool) -> set[bool]:
    """How the i-th part of a formula without a quantifier on top counts; a part of an equation counts both ways."""
    if z3.is_and(formula) or z3.is_or(formula) or (z3.is_app_of(formula, z3.Z3_OP_ITE) and i > 0):
        return {positive}
    if z3.is_not(formula) or z3.is_implies(formula):
        return {positive == (i == 1)}
    return {True, False}
