"""`prove_program`: does a `.pte` file compute what its model means?

The file's kernel calls are followed over its arenas (`serialized.py`), the model is evaluated by its functional
meaning, and both name what they compute by the same function symbols. Where the two spell an operator differently, or
the file does something that has no model, nothing is claimed.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from copyproof.spec.effects import Chain
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.program import Program, Role
from copyproof.verify.evaluate import Content, Trace, evaluate
from copyproof.verify.kernels import kernel_program_of
from copyproof.verify.pair import assigned
from copyproof.verify.serialized import Execution, State, constant_content, execution_of
from copyproof.verify.solver import Above, Case, Differ, Number, Theory
from copyproof.verify.spelling import raw_bytes
from copyproof.verify.verdicts import Finding, Report

_MOST_SHOWN = 5
_ZERO = Number("none", 0)


def prove_program(
    original: ExportedProgram,
    pte: bytes,
    *,
    method: str = "forward",
    timeout: float = 60.0,
    keep_queries: Path | None = None,
) -> Report:
    """Whether a `.pte` file computes what a program means, for every call: the state it starts from is any state.

    Args:
        original: the functional program as the write-back pass gets it (`copyproof.spec.pipeline.at_write_back`).
        pte: the contents of the file.
        method: the method of the file to prove.
        timeout: seconds for each obligation; after that it is UNKNOWN.
        keep_queries: a folder where each query is kept as an SMT-LIB 2 file.

    Raises:
        BadInput: the file cannot be read, or has no such method, or another number of inputs.
    """
    started = perf_counter()
    program = kernel_program_of(original)
    functional = evaluate(program, "F", _contents(original))
    news = assigned(program, functional)
    users = [item for item in program.inputs if item.role is Role.USER_INPUT]
    names = {s.arg.name: s.target for s in original.graph_signature.input_specs if s.kind is InputKind.BUFFER}
    states = {
        names[item.name]: State(position, int(item.type.nbytes), item.type.dtype)
        for position, item in enumerate(program.inputs)
        if item.name in news and item.name in names and item.type is not None
    }
    execution = execution_of(pte, method, [f"in!{item.name}" for item in users], states)
    theory = Theory({**functional.definitions, **execution.definitions}, timeout, keep_queries)
    judge = _Judge(theory, functional, execution)
    state, output = _results(program, functional, execution, news, names)
    tokens = [("random numbers", functional.tokens[Chain.RANDOM], execution.tokens[Chain.RANDOM])]
    assumed = list(functional.approximations)
    if functional.tokens[Chain.ORDERED] != f"in!{Chain.ORDERED.name}":
        assumed.append("assertions and other calls without results may be left out of the file, as the pipeline does")
    expected = [item.type.spelled if item.type else "number" for item in users]
    findings = (
        judge.equal(Obligation.STATE, state),
        judge.equal(Obligation.OUTPUT, output),
        judge.equal(Obligation.EFFECTS, tokens),
        judge.none(Obligation.SIGNATURE, _signature(expected, execution, len(output))),
        judge.none(Obligation.PLAN, [*execution.plan, *execution.torn]),
        judge.none(Obligation.INIT, _initial(original, names, execution)),
    )
    statistics = {
        "calls": execution.calls,
        "targets": len(news),
        "definitions": len(theory.definitions),
        "seconds": round(perf_counter() - started, 4),
    }
    return Report(findings, tuple(assumed), statistics)


class _Judge:
    """Asks the solver about one file, and says what an answer means."""

    def __init__(self, theory: Theory, functional: Trace, execution: Execution) -> None:
        self.theory = theory
        self.unknown = {**functional.unknown, **execution.unknown}
        self.lost = bool(execution.unknown)
        self.of_model = {definition.symbol for definition in functional.definitions.values()}
        self.of_file = {definition.symbol for definition in execution.definitions.values()}

    def equal(self, obligation: Obligation, pairs: list[tuple[str, Content, Content]]) -> Finding:
        """Each pair holds the same: the query is that some pair differs."""
        answer = self.theory.ask(obligation.name, [Case(what, (Differ(a, b),)) for what, a, b in pairs])
        if answer.status == "unsat":
            vacuous = "" if pairs else "there is nothing to compare"
            return Finding(obligation, Verdict.PROVED, answer.seconds, vacuous=vacuous)
        if answer.status == "unknown":
            reason = f"the solver gave up after {answer.seconds:.1f} s; raise --timeout"
            return Finding(obligation, Verdict.UNKNOWN, answer.seconds, (reason,))
        wrong: list[str] = []
        doubts: list[str] = []
        for index in answer.holding:
            what, expected, found = pairs[index]
            reason, certain = self._difference(expected, found)
            (wrong if certain else doubts).append(f"{what} {reason}")
        verdict = Verdict.REFUTED if wrong else Verdict.UNKNOWN
        return Finding(obligation, verdict, answer.seconds, tuple((wrong or doubts)[:_MOST_SHOWN]))

    def none(self, obligation: Obligation, faults: list[str]) -> Finding:
        """There is no fault of a kind: the query is that their number is above zero."""
        answer = self.theory.ask(obligation.name, [Case("faults", (Above(Number("faults", len(faults)), _ZERO),))])
        verdict = Verdict.PROVED if answer.status == "unsat" else Verdict.REFUTED
        if verdict is Verdict.PROVED and self.lost:
            reason = "not all calls of the file have a model"
            return Finding(obligation, Verdict.UNKNOWN, answer.seconds, (reason,))
        return Finding(obligation, verdict, answer.seconds, tuple(dict.fromkeys(faults))[:_MOST_SHOWN])

    def _difference(self, expected: Content, found: Content) -> tuple[str, bool]:
        """Where two contents come apart, and whether that is certain: it is where both sides know both operators, and
        not where one side spells an operator as the other never does."""
        leaves = self.theory.leaves([expected, found]) & set(self.unknown)
        if leaves:
            return f"is not known: {self.unknown[min(leaves)]}", False
        seen: set[tuple[Content, Content]] = set()
        frontier = [(expected, found)]
        told = ""
        while frontier:
            pair = frontier.pop()
            if pair in seen or pair[0] == pair[1]:
                continue
            seen.add(pair)
            a, b = (self.theory.definitions.get(content) for content in pair)
            if a is None or b is None:
                should, does = (_told(content, self.theory) for content in pair)
                told = told or f"comes from {does} where it should come from {should}"
            elif a.symbol != b.symbol and (a.symbol not in self.of_file or b.symbol not in self.of_model):
                return f"is not known: {a.symbol} of the model has no like in the file, which has {b.symbol}", False
            elif a.symbol != b.symbol or len(a.operands) != len(b.operands):
                told = told or f"is {_told(pair[1], self.theory)} where it should be {_told(pair[0], self.theory)}"
            else:
                frontier.extend(zip(a.operands, b.operands, strict=True))
        return told or "differs", True


def _results(
    program: Program,
    functional: Trace,
    execution: Execution,
    news: dict[str, Content],
    names: dict[str, str],
) -> tuple[list[tuple[str, Content, Content]], list[tuple[str, Content, Content]]]:
    """What each target and each output should hold, and what it does hold in the file."""
    state, output = [], []
    position = 0
    for index, item in enumerate(program.outputs):
        if item.target in names:
            name = names[item.target]
            found = execution.final.get(name, f"missing!{name}")
            state.append((f"buffer {name!r}", news[item.target], found))
            continue
        found = execution.outputs[position] if position < len(execution.outputs) else f"missing!{position}"
        position += 1
        if item.target is not None:
            state.append((f"user input {item.target!r}", news[item.target], found))
        elif item.value is not None:
            output.append((f"output {index} ({item.node_name})", functional.outputs[index], found))
    return state, output


def _signature(expected: list[str], execution: Execution, outputs: int) -> list[str]:
    faults = [
        f"input {i} of the file is {found}, the model's is {wanted}"
        for i, (wanted, found) in enumerate(zip(expected, execution.input_types, strict=True))
        if wanted != found and not any(c.isalpha() for c in wanted.partition("[")[2])
    ]
    if len(execution.outputs) < outputs:
        faults.append(f"the file has {len(execution.outputs)} outputs, the model {outputs}")
    return faults


def _initial(original: ExportedProgram, names: dict[str, str], execution: Execution) -> list[str]:
    """Buffers whose first contents in the file are not the model's."""
    faults = []
    for name, buffer in execution.buffers.items():
        value = original.state_dict.get(name, original.constants.get(name))
        if name not in names.values() or not isinstance(value, torch.Tensor):
            continue
        wanted = raw_bytes(value)
        if (buffer.initial or bytes(len(wanted))) != wanted:
            start = "zero" if buffer.initial is None else "other contents"
            faults.append(
                f"buffer {name!r} starts at {start} in the file, and not so in the model; "
                f"lower with InitializedMutableBufferPass([{name!r}])"
            )
    return faults


def _contents(original: ExportedProgram) -> dict[str, Content]:
    """What each input holds at the start of a call, by placeholder name: constants by their bytes, as in the file."""
    signature = original.graph_signature
    mutated = set(signature.buffers_to_mutate.values())
    found = {}
    for spec in signature.input_specs:
        name = getattr(spec.arg, "name", "")
        if spec.kind is InputKind.USER_INPUT:
            found[name] = f"in!{name}"
        elif spec.target in mutated:
            found[name] = f"state!{spec.target}"
        else:
            value = original.state_dict.get(spec.target or "", original.constants.get(spec.target or ""))
            if isinstance(value, torch.Tensor):
                found[name] = constant_content(raw_bytes(value), str(value.dtype).removeprefix("torch."))
    return found


def _told(content: Content, theory: Theory) -> str:
    definition = theory.definitions.get(content)
    if definition is not None:
        return f"a result of {_name(definition.symbol)}"
    kind, _, name = content.partition("!")
    return {"state": f"the old contents of {name!r}", "in": f"input {name!r}", "const": "a constant"}.get(
        kind, "bytes that hold something else"
    )


def _name(symbol: str) -> str:
    return symbol.split("(", 1)[0].split("<", 1)[0]
