"""`prove_program`: does a `.pte` file compute what its model means?

The file's calls are followed over its arenas (`serialized.py`, `follow.py`), the model is evaluated by its functional
meaning, and both name what they compute by the same function symbols. Where the two spell an operator differently, or
the file does something that has no model, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import perf_counter

import torch
from executorch.exir import memory
from executorch.exir.tensor import dim_order_from_stride
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from copyproof.spec.effects import Chain
from copyproof.spec.errors import BadInput
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.spec.program import Program, Role, TensorType, Value
from copyproof.spec.runtime_kernels import presumed
from copyproof.spec.signature import held
from copyproof.verify.difference import Differences
from copyproof.verify.evaluate import evaluate
from copyproof.verify.execution import Execution
from copyproof.verify.folding import folded
from copyproof.verify.follow import follow
from copyproof.verify.kernels import asserts, delegates_of, kernel_program_of
from copyproof.verify.machine import Kernel, Machine, Tensor, layout_of
from copyproof.verify.pair import assigned
from copyproof.verify.serialized import File, State, recognised
from copyproof.verify.sharing import sharing
from copyproof.verify.sizes import from_two, narrowed
from copyproof.verify.solver import Above, Case, Differ, Number, Theory
from copyproof.verify.spelling import content_of, raw_bytes
from copyproof.verify.trace import Content, Definition, Trace
from copyproof.verify.verdicts import Conflict, Finding, Report
from copyproof.verify.witness import seen_from_another_start

_MOST_SHOWN = 5
_ZERO = Number("none", 0)


def prove_program(
    original: ExportedProgram,
    pte: bytes,
    *,
    method: str = "forward",
    data: Mapping[str, bytes] | None = None,
    timeout: float = 60.0,
    keep_queries: Path | None = None,
) -> Report:
    """Whether a `.pte` file computes what a program means, for every call: the state it starts from is any state.

    Args:
        original: the functional program: that of an EdgeProgramManager (`edge.exported_program()`) before
            `to_executorch` has changed it, or what the write-back pass gets (`copyproof.spec.pipeline.at_write_back`).
        pte: the contents of the file.
        method: the method of the file to prove.
        data: what external data files hold, by key (`external_data`).
        timeout: seconds for each obligation; after that it is UNKNOWN.
        keep_queries: a folder where each query is kept as an SMT-LIB 2 file.

    Raises:
        BadInput: the file cannot be read, or has no such method, or another number of inputs, or a part is missing.
    """
    started = perf_counter()
    file = File(pte, data)
    machine = file.machine(method)
    named = frozenset(machine.buffers)
    meaning = Meaning(original, kept=named)
    report = meaning.report(recognised(machine, meaning.states), timeout, keep_queries)
    if len(file.plans) > 1:
        machines = {name: machine if name == method else file.machine(name) for name in file.plans}
        faults = sharing(machines, method, set(meaning.names.values()))
        verdict = Verdict.REFUTED if faults else Verdict.PROVED
        nameless = [name for name in meaning.states if name not in named]
        if nameless and not faults:
            verdict = Verdict.UNKNOWN
            faults = [f"buffer {nameless[0]!r} has no name in the file; lower with emit_mutable_buffer_names=True"]
        vacuous = "" if any(machine.buffers for machine in machines.values()) else "no method has a named buffer"
        shared = Finding(
            Obligation.SHARED, verdict, 0.0, tuple(faults[:_MOST_SHOWN]), vacuous="" if faults else vacuous
        )
        report = replace(report, findings=(*report.findings, shared))
    return replace(report, statistics={**report.statistics, "seconds": round(perf_counter() - started, 4)})


def external_data(ptd: bytes) -> dict[str, bytes]:
    """The contents of an external data file (`.ptd`), by key.

    Raises:
        BadInput: it cannot be read.
    """
    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    try:
        payload = FlatTensorSerializer().deserialize(Cord(ptd))
        return {key: bytes(payload.buffers[entry.buffer_index]) for key, entry in payload.named_data.items()}
    except Exception as error:  # whatever a damaged file raises
        raise BadInput("it cannot be read as a .ptd file; give the one that was written with the .pte") from error


class Meaning:
    """What a functional program means, as lowered programs spell it: evaluated once, to judge any number of them.

    Args:
        original: the program.
        prefix: begins the names of what it defines.
        kept: qualified names of buffers that are state though this program leaves them as they are, since another
            method of the same file may change them.

    Raises:
        BadInput: it is no program that has such a meaning.
    """

    def __init__(self, original: ExportedProgram, prefix: str = "F", kept: frozenset[str] = frozenset()) -> None:
        _require_not_lowered(original)
        self.original = original
        self.program: Program = kernel_program_of(original)
        self.contents = _contents(original, kept)
        self.functional: Trace = evaluate(self.program, prefix, self.contents)
        self.news = assigned(self.program, self.functional)
        self.users = [item for item in self.program.inputs if item.role is Role.USER_INPUT]
        self.names = {
            s.arg.name: s.target or "" for s in original.graph_signature.input_specs if s.kind is InputKind.BUFFER
        }
        self.parameters = {
            s.arg.name: s.target or "" for s in original.graph_signature.input_specs if s.kind is InputKind.PARAMETER
        }
        held = {**self.names, **self.parameters}
        self.states = {
            held[item.name]: State(position, int(item.type.nbytes), item.type.dtype)
            for position, item in enumerate(self.program.inputs)
            if item.name in held and item.type is not None
            if item.name in self.news or held[item.name] in kept
        }

    def same_as(self, other: ExportedProgram, timeout: float) -> Verdict:
        """Whether another program, functional but for in-place operators within it, means the same.

        Raises:
            BadInput: it has another signature.
        """
        theirs = Meaning(other, "E")
        if list(theirs.news) != list(self.news) or len(theirs.functional.outputs) != len(self.functional.outputs):
            raise BadInput("the two programs have other targets or outputs")
        trace = theirs.functional
        used = Execution(definitions=trace.definitions, unknown=trace.unknown)
        names = self._folded(used)
        definitions = _renamed(trace.definitions, names)
        theory = Theory({**self.functional.definitions, **definitions}, timeout)
        judge = _Judge(theory, self.functional, replace(used, definitions=definitions))
        pairs = [(target, self.news[target], theirs.news[target]) for target in self.news]
        users = [i for i, item in enumerate(self.program.outputs) if item.target is None]
        pairs += [(f"output {i}", self.functional.outputs[i], trace.outputs[i]) for i in users]
        pairs += [(chain.value, self.functional.tokens[chain], trace.tokens[chain]) for chain in Chain]
        return judge.equal(Obligation.OUTPUT, pairs).verdict

    def report(
        self, machine: Machine, timeout: float = 60.0, keep_queries: Path | None = None, initial: bool = True
    ) -> Report:
        """Whether a machine computes this; with `initial`, also whether it starts from the same state.

        Raises:
            BadInput: it has another number of inputs, or is damaged.
        """
        started = perf_counter()
        if len(machine.inputs) != len(self.users):
            raise BadInput(
                f"the .pte file takes {len(machine.inputs)} inputs, the model {len(self.users)}; is it another model's?"
            )
        inputs = [f"in!{item.name}" for item in self.users]
        execution = follow(machine, inputs, list(self.states), delegates_of(self.original))
        names = self._folded(execution)
        if names:
            execution = replace(
                execution,
                definitions=_renamed(execution.definitions, names),
                outputs=[names.get(content, content) for content in execution.outputs],
                final={name: names.get(content, content) for name, content in execution.final.items()},
            )
        theory = Theory({**self.functional.definitions, **execution.definitions}, timeout, keep_queries)
        judge = _Judge(theory, self.functional, execution, self._constants(), narrowed(self.original))
        state, output = self._results(execution)
        tokens = [
            (chain.value, self.functional.tokens[chain], execution.tokens[chain])
            for chain in Chain
            if chain is Chain.RANDOM or self.functional.tokens[chain] != execution.tokens[chain]
        ]
        findings = (
            judge.equal(Obligation.STATE, state),
            judge.equal(Obligation.OUTPUT, output),
            judge.equal(Obligation.FRAME, self._frame(execution)),
            judge.equal(Obligation.EFFECTS, tokens),
            judge.none(Obligation.SIGNATURE, self._signature(execution, len(output))),
            judge.none(Obligation.PLAN, execution.plan, execution.torn),
            *([self._initial(judge, machine)] if initial else []),
        )
        statistics = {
            "calls": execution.calls,
            "targets": len(self.news),
            "definitions": len(theory.definitions),
            "seconds": round(perf_counter() - started, 4),
        }
        return Report(findings, tuple(self._assumed(machine, bool(names))), statistics)

    def _constants(self) -> dict[Content, str]:
        """What the constants of the model are called, by their contents."""
        named = {getattr(s.arg, "name", ""): s.target for s in self.original.graph_signature.input_specs if s.target}
        return {c: named[name] or name for name, c in self.contents.items() if c.startswith("const!") and name in named}

    def _folded(self, execution: Execution) -> dict[Content, Content]:
        """The contents of the model that constants of a program are, where the pipeline has computed them."""
        used = {o for definition in execution.definitions.values() for o in definition.operands}
        used.update(execution.outputs, execution.final.values())
        constants = {o for o in used if o.startswith("const!")} - set(self.contents.values())
        nodes = folded(self.original, constants)
        values = self.functional.values
        return {c: values[Value(node)].content for c, node in nodes.items() if Value(node) in values}

    def _assumed(self, machine: Machine, has_folded: bool) -> list[str]:
        assumed = [
            "each kernel of the runtime computes what its operator means in PyTorch (integers within 53 bits, no NaN)",
            *self.functional.approximations,
        ]
        missing = sorted({c.spelled for c in machine.calls if isinstance(c, Kernel) and c.overload} - _registered())
        if missing and _registered():
            assumed.append(
                f"whoever loads the file brings kernels that executorch's runtime lacks: {', '.join(missing)}"
            )
        assumed += from_two(self.original)
        for call in machine.calls:
            if isinstance(call, Kernel):
                given = [machine.slots[index] for index in call.slots]
                text = presumed(call.name, [slot.type for slot in given if isinstance(slot, Tensor)])
                assumed += [text] if text and text not in assumed else []
        for output in self.program.outputs:
            located = self.functional.values.get(output.value) if output.value is not None else None
            target = next((item for item in self.program.inputs if item.name == output.target), None)
            if located is None or target is None or target.type is None:
                continue
            if located.type.spelled != target.type.spelled:
                assumed.append(
                    f"{output.target}, which is {target.type.spelled}, takes {located.type.spelled}: where that was a "
                    "copy_, its decomposition has lost the cast, and readers of the new value may differ from eager"
                )
        if has_folded:
            assumed.append("constants that the pipeline has computed are what PyTorch computes here")
        if asserts(self.original):
            assumed.append("assertions hold: the pipeline leaves them out")
        if any(isinstance(slot, Tensor) and slot.dynamic for slot in machine.slots):
            assumed.append("tensors whose sizes are not fixed are compared at their upper bounds, as they are planned")
        return assumed

    def _results(
        self, execution: Execution
    ) -> tuple[list[tuple[str, Content, Content]], list[tuple[str, Content, Content]]]:
        """What each target and each output should hold, and what it does hold."""
        kept = [name for item, name in self.names.items() if name in self.states and item not in self.news]
        state = [(f"buffer {name!r}", f"state!{name}", execution.final.get(name, f"missing!{name}")) for name in kept]
        output = []
        position = 0
        for index, item in enumerate(self.program.outputs):
            target = item.target or ""
            if target in self.names:
                name = self.names[target]
                found = execution.final.get(name, f"missing!{name}")
                state.append((f"buffer {name!r}", self.news[target], found))
                continue
            found = execution.outputs[position] if position < len(execution.outputs) else f"missing!{position}"
            position += 1
            if target in self.parameters:
                name = self.parameters[target]
                found = execution.final.get(name, f"missing!{name}")
                state.append((f"parameter {name!r}", self.news[target], found))
            elif item.target is not None:
                state.append((f"user input {item.target!r}", self.news[item.target], found))
                given = [i for i, user in enumerate(self.users) if user.name == item.target]
                after = execution.given[given[0]] if given and given[0] < len(execution.given) else None
                if after is not None:
                    state.append((f"user input {item.target!r} in the caller's memory", self.news[item.target], after))
            else:
                what = f"output {index} ({item.node_name})" if item.node_name else f"output {index}"
                output.append((what, self.functional.outputs[index], found))
        return state, output

    def _frame(self, execution: Execution) -> list[tuple[str, Content, Content]]:
        """What should be as it was: constants, and inputs in the caller's memory that are no targets."""
        kept = [
            (f"input {item.name!r} in the caller's memory", f"in!{item.name}", after)
            for item, after in zip(self.users, execution.given, strict=True)
            if after is not None and item.name not in self.news
        ]
        others = [
            (f"buffer {name!r}", f"state!{name}", after)
            for name, after in execution.final.items()
            if name not in self.states
        ]
        return [*execution.frame, *kept, *others]

    def _signature(self, execution: Execution, outputs: int) -> list[str]:
        faults = []
        for i, (item, found) in enumerate(zip(self.users, execution.input_types, strict=True)):
            wanted = item.type.spelled if item.type else "number"
            if wanted != found:
                faults.append(f"input {i} of the file is {found}, the model's is {wanted}")
            layout = execution.input_layouts[i]
            if item.type is not None and wanted == found and layout != layout_in_memory(item.type):
                faults.append(f"input {i} of the file is {layout}, the model's is {layout_in_memory(item.type)}")
        mutated = sum(o.target is not None and o.target not in self.names for o in self.program.outputs)
        if len(execution.outputs) != outputs + mutated:
            faults.append(f"the file has {len(execution.outputs)} outputs, the model {outputs + mutated}")
            return faults
        kept = [o for o in self.program.outputs if o.target not in self.names]
        for i, (output, found) in enumerate(zip(kept, execution.output_types, strict=True)):
            located = self.functional.values.get(output.value) if output.value is not None else None
            wanted = located.type.spelled if located is not None else "number"
            if output.target in self.parameters:
                # Mutated inputs come first in what the runtime returns; of parameters no caller knows.
                name = self.parameters[output.target]
                faults.append(f"output {i} of the file is parameter {name!r}, which the model does not return")
            if output.target is None and wanted != found:
                faults.append(f"output {i} of the file is {found}, the model's is {wanted}")
        return faults

    def _initial(self, judge: _Judge, machine: Machine) -> Finding:
        """INIT: mutable buffers start with the model's contents. Where they do not, and it makes no difference to any
        call that is run, nothing is claimed."""
        faults = []
        starts: dict[str, bytes] = {}
        for name, index in machine.buffers.items():
            value = held(self.original, name)
            slot = machine.slots[index]
            if name not in self.states or not isinstance(value, torch.Tensor) or not isinstance(slot, Tensor):
                continue
            wanted = raw_bytes(value)
            found = slot.held if slot.held is not None else bytes(len(wanted))
            if found != wanted:
                starts[name] = found
                start = "zero" if slot.held is None else "other contents"
                faults.append(
                    f"buffer {name!r} starts at {start} in the file, and not so in the model; "
                    f"lower with InitializedMutableBufferPass([{name!r}])"
                )
        finding = judge.none(Obligation.INIT, [*machine.astray, *faults])
        if machine.astray or finding.verdict is not Verdict.REFUTED:
            return finding
        seen = seen_from_another_start(self.original, starts)
        if seen.differs or not seen.ran:
            return replace(finding, reasons=(*finding.reasons, *seen.lines)[:_MOST_SHOWN])
        doubt = f"{seen.ran} calls from either start showed no difference: what is read may have been written before"
        return replace(finding, verdict=Verdict.UNKNOWN, reasons=(*finding.reasons, doubt))


class _Judge:
    """Asks the solver about one program, and says what an answer means."""

    def __init__(
        self,
        theory: Theory,
        functional: Trace,
        execution: Execution,
        constants: Mapping[Content, str] | None = None,
        assumption: str = "",
    ) -> None:
        self.theory = theory
        self.differences = Differences(functional, execution, constants or {})
        self.doubt = f"not all calls have a model: {execution.lost}" if execution.lost else assumption

    def equal(self, obligation: Obligation, pairs: list[tuple[str, Content, Content]]) -> Finding:
        """Each pair holds the same: the query is that some pair differs."""
        answer = self.theory.ask(obligation.name, [Case(what, (Differ(a, b),)) for what, a, b in pairs])
        if answer.status == "unsat" and self.doubt:
            return Finding(obligation, Verdict.UNKNOWN, answer.seconds, (self.doubt,))
        if answer.status == "unsat":
            vacuous = "" if pairs else "there is nothing to compare"
            return Finding(obligation, Verdict.PROVED, answer.seconds, vacuous=vacuous)
        if answer.status == "unknown":
            reason = f"the solver gave up after {answer.seconds:.1f} s; raise --timeout"
            return Finding(obligation, Verdict.UNKNOWN, answer.seconds, (reason,))
        wrong: list[str] = []
        doubts: list[str] = []
        conflicts: list[Conflict] = []
        for index in answer.holding:
            difference = self.differences.between(*pairs[index])
            (wrong if difference.certain else doubts).append(difference.reason)
            if difference.certain and difference.conflict is not None:
                conflicts.append(difference.conflict)
        verdict = Verdict.REFUTED if wrong else Verdict.UNKNOWN
        reasons = tuple(dict.fromkeys(wrong or doubts))[:_MOST_SHOWN]
        return Finding(obligation, verdict, answer.seconds, reasons, tuple(conflicts[:1]))

    def none(self, obligation: Obligation, faults: list[str], conflicts: list[Conflict] | None = None) -> Finding:
        """There is no fault of a kind: the query is that their number is above zero."""
        told = [self.differences.named(fault) for fault in faults]
        shown = [self.differences.renamed(conflict) for conflict in conflicts or ()]
        told += [
            f"{c.read} reads {c.target}, which nothing has written"
            if c.write == "nothing"
            else f"{c.read} reads {c.target}, which {c.write} has overwritten since {c.last_write}"
            for c in shown
        ]
        shown = [c for c in shown if c.write != "nothing"]
        answer = self.theory.ask(obligation.name, [Case("faults", (Above(Number("faults", len(told)), _ZERO),))])
        verdict = Verdict.PROVED if answer.status == "unsat" else Verdict.REFUTED
        if verdict is Verdict.PROVED and self.doubt:
            return Finding(obligation, Verdict.UNKNOWN, answer.seconds, (self.doubt,))
        reasons = tuple(dict.fromkeys(told))[:_MOST_SHOWN]
        return Finding(obligation, verdict, answer.seconds, reasons, tuple(shown[:1]))


def _require_not_lowered(original: ExportedProgram) -> None:
    """Raises BadInput where `to_executorch` has lowered the program already: it changes its EdgeProgramManager."""
    if any(node.target is memory.alloc for node in original.graph.nodes):
        raise BadInput(
            "the original was lowered already, since to_executorch changes the program that it lowers; take "
            "copyproof.spec.pipeline.copy_of(edge.exported_program()) before it, or use prove_lowering or guarded"
        )


def layout_in_memory(kind: TensorType) -> str:
    """How a tensor of this type lies in memory, as files say it."""
    order = [int(d) for d in dim_order_from_stride(kind.strides)]
    return layout_of(kind.dtype, kind.shape, order)


@cache
def _registered() -> frozenset[str]:
    """The operators that the installed runtime has kernels for, as `aten::add.out`; none where it is not there."""
    try:
        from executorch.extension.pybindings.portable_lib import _get_operator_names
    except ImportError:
        return frozenset()
    return frozenset(str(name) for name in _get_operator_names())


def _renamed(definitions: Mapping[Content, Definition], names: Mapping[Content, Content]) -> dict[Content, Definition]:
    return {
        name: replace(definition, operands=tuple(names.get(o, o) for o in definition.operands))
        for name, definition in definitions.items()
    }


def _contents(original: ExportedProgram, kept: frozenset[str]) -> dict[str, Content]:
    """What each input holds at the start of a call, by placeholder name: constants by their bytes, as in the file."""
    signature = original.graph_signature
    mutated = set(signature.buffers_to_mutate.values())
    found = {}
    for spec in signature.input_specs:
        name = getattr(spec.arg, "name", "")
        if spec.kind is InputKind.USER_INPUT:
            found[name] = f"in!{name}"
        elif spec.kind is InputKind.BUFFER and (spec.target in mutated or spec.target in kept):
            found[name] = f"state!{spec.target}"
        else:
            value = held(original, spec.target)
            if isinstance(value, torch.Tensor):
                found[name] = content_of(value)
    return found
