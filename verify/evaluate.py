"""What a program computes, as definitions over uninterpreted contents, and every read and write on the way.

`evaluate` runs a program step by step over storages; each tensor's contents are a name, defined by a function symbol of
other names. The same evaluator serves both meanings: the functional one is the original evaluated with no lowering,
the memory one is the rewritten graph evaluated as it will be lowered.
"""

from __future__ import annotations

from collections.abc import Mapping

from copyproof.spec.effects import Chain, Contents
from copyproof.spec.program import (
    Branches,
    Input,
    Loop,
    Program,
    Region,
    Result,
    Role,
    Size,
    Step,
    TensorType,
    Value,
    region_of,
)
from copyproof.verify.arithmetic import Relation, relation
from copyproof.verify.trace import Content, Definition, Located, Read, Storage, Trace, Version, Write


def evaluate(
    program: Program,
    prefix: str,
    inputs: Mapping[str, Content] | None = None,
    known: Mapping[tuple[str, tuple[Content, ...]], Content] | None = None,
) -> Trace:
    """Runs `program` over uninterpreted contents.

    Args:
        program: the program model, already lowered.
        prefix: begins the names of what it defines.
        inputs: what inputs hold, by placeholder name; the others hold `in!NAME`.
        known: names of contents that are defined already, by symbol and operands: what is equal to one of them by
            congruence gets its name.
    """
    ranges = tuple((name, lower, upper) for name, (lower, upper) in sorted(program.ranges.items()))
    evaluator = _Evaluator(program, Trace(prefix, ranges), inputs or {})
    evaluator.defined.update(known or {})
    return evaluator.run()


def copied(source: TensorType | None, into: TensorType) -> str | None:
    """The function symbol of a copy that casts and broadcasts a tensor (or a number) into a type; None where it keeps
    the contents as they are."""
    if source is not None and (source.shape, source.dtype) == (into.shape, into.dtype):
        return None
    return f"copy<{source.spelled if source else 'number'}->{into.spelled}>"


SELECT = "select"
"""The symbol of what a branch leaves: the condition, and what each way leaves."""


def keeps_first(first: TensorType, into: TensorType, ordered: bool) -> bool:
    """Whether a result of an operator that copies its first operand holds just that one's contents: in the same shape,
    or (where the operator keeps the elements in `ordered` sequence) in any that is fixed."""
    if first.dtype != into.dtype:
        return False
    if first.shape == into.shape and first.dynamic == into.dynamic:
        return not (into.dynamic and ordered)
    return ordered and not into.dynamic


def copied_row(row: int, type_: TensorType) -> str:
    """The symbol of a stack whose last row is `row`: of the rows before it, if any, and a value of this type."""
    return f"row {row}<{type_.spelled}>"


class _Evaluator:
    def __init__(self, program: Program, trace: Trace, inputs: Mapping[str, Content]) -> None:
        self.program = program
        self.inputs = inputs
        self.trace = trace
        self.tokens: dict[Chain, Content] = {chain: f"in!{chain.name}" for chain in Chain}
        self.defined: dict[tuple[str, tuple[Content, ...]], Content] = {}
        self.flat: dict[Content, Content] = {}
        self.looks_around = any(step.reads_around or "as_strided" in step.symbol for step in program.steps)

    def run(self) -> Trace:
        trace = self.trace
        for placeholder in self.program.inputs:
            self._input(placeholder)
        for index, step in enumerate(self.program.steps):
            self._step(index, step)
        end = len(self.program.steps)
        for placeholder in self.program.inputs:
            value = Value(placeholder.name)
            if value in trace.values:
                located = trace.values[value]
                trace.final[placeholder.name] = self._contents(located, end)
        for index, output in enumerate(self.program.outputs):
            if output.value is None:
                trace.outputs.append(f"constant!{output.constant}")
            else:
                trace.outputs.append(self._read(end, "output", index, output.value))
        trace.tokens = dict(self.tokens)
        return trace

    def _input(self, placeholder: Input) -> None:
        value = Value(placeholder.name)
        content = self.inputs.get(placeholder.name, placeholder.content)
        if not content:
            held = "#" in placeholder.target and placeholder.role is Role.CONSTANT
            content = f"in!{placeholder.name}" + (f"!{placeholder.target}" if held else "")
        if placeholder.type is None:
            self.trace.numbers[value] = content
            return
        region = region_of(placeholder.type)
        storage = Storage(placeholder.name, region, placeholder.type.nbytes, fresh=False)
        storage.versions.append(Version(content, region, content, -1))
        self.trace.storages.append(storage)
        self.trace.values[value] = Located(storage, region, placeholder.type, content, -1)

    def _step(self, index: int, step: Step) -> None:
        if step.approximation and step.approximation not in self.trace.approximations:
            self.trace.approximations.append(step.approximation)
        contents = [self._operand(index, step, i, value) for i, value in enumerate(step.operands)]
        if step.body is not None:
            self._inside(index, step, step.body, contents)
            return
        reason = step.opaque or step.untyped or self._around(step)
        signature = self._signature(step)
        extra: list[Content] = [f"uninitialised!{step.name}"] if step.uninitialised else []
        for chain in sorted(step.chains, key=lambda c: c.name):
            extra.append(self.tokens[chain])
        for chain in step.chains:
            token = f"{signature}!{chain.name}"
            self.tokens[chain] = self._define(f"{step.name}!{chain.name}", token, [*contents, *extra])
        if step.opaque:
            for value in step.operands:
                self._havoc_storages(index, step.name, value, step.opaque)
        for position in step.writes:
            self._write(index, step, position, signature, contents, extra, reason)
        for number, result in enumerate(step.results):
            self._result(index, step, number, result, signature, [*contents, *extra], reason)

    def _inside(self, index: int, step: Step, body: Branches | Loop, contents: list[Content]) -> None:
        """Runs a step's programs: both branches, or the rounds of a loop one by one."""
        found: list[Content]
        if isinstance(body, Branches):
            condition, given = contents[0], contents[1:]
            before = dict(self.tokens)
            then, after_then = self._nested(f"{step.name}.then", body.then, given)
            self.tokens = before
            other, after_other = self._nested(f"{step.name}.else", body.other, given)
            self.tokens = {c: self._either(step.name, condition, after_then[c], after_other[c]) for c in after_then}
            pairs = zip(then, other, strict=True)
            found = [self._either(step.name, condition, a[0], b[0]) for a, b in pairs]
        else:
            carried, rows = contents[: body.carried], contents[body.carried : body.carried + body.mapped]
            others = contents[body.carried + body.mapped :]
            stacks: list[Content] = []
            for i in range(body.rounds):
                row = [self._row(step, body, k, i, content) for k, content in enumerate(rows)]
                returned, self.tokens = self._nested(f"{step.name}.{i}", body.program, [*carried, *row, *others])
                carried = [content for content, _ in returned[: body.carried]]
                stacks = [
                    self._define(f"{step.name}.{i}", copied_row(i, kind), [*stacks[k : k + 1], content])
                    for k, (content, kind) in enumerate(returned[body.carried :])
                    if kind is not None
                ]
            found = [*carried, *stacks]
        for number, (result, content) in enumerate(zip(step.results, found, strict=True)):
            value = Value(step.name, number)
            if result.type is None:
                self.trace.numbers[value] = content
                continue
            region = region_of(result.type)
            storage = Storage(f"{step.name}#{number}", region, result.type.nbytes, fresh=True)
            storage.versions.append(Version(content, region, content, index))
            self.trace.storages.append(storage)
            self.trace.values[value] = Located(storage, region, result.type, content, index)

    def _nested(
        self, name: str, program: Program, contents: list[Content]
    ) -> tuple[list[tuple[Content, TensorType | None]], dict[Chain, Content]]:
        """What a program returns for these contents, with types, and the effects after it."""
        trace = Trace(f"{self.trace.prefix}!{name}", self.trace.ranges, self.trace.definitions)
        trace.unknown, trace.approximations = self.trace.unknown, self.trace.approximations
        inputs = dict(zip(program.operands, contents, strict=True))
        inner = _Evaluator(program, trace, inputs)
        inner.defined, inner.flat, inner.tokens = self.defined, self.flat, dict(self.tokens)
        inner.run()
        reason = next((f"{w.name} writes into an operand of {name}" for w in trace.writes if not w.storage.fresh), "")
        found: list[tuple[Content, TensorType | None]] = []
        for output, content in zip(program.outputs, trace.outputs, strict=True):
            located = trace.values.get(output.value) if output.value is not None else None
            found.append((self._havoc(name, reason) if reason else content, located.type if located else None))
        return found, trace.tokens

    def _either(self, name: str, condition: Content, then: Content, other: Content) -> Content:
        return then if then == other else self._define(name, SELECT, [condition, then, other])

    def _row(self, step: Step, loop: Loop, operand: int, row: int, content: Content) -> Content:
        """Row `row` of a tensor that a loop goes over: what `select_copy` takes out of it, as files do."""
        whole = self.trace.values[step.operands[loop.carried + operand]].type
        taken = next(i.type for i in loop.program.inputs if i.name == loop.program.operands[loop.carried + operand])
        assert taken is not None
        symbol = f"aten.select_copy.int_out(%,0,{row})<{whole.spelled}>->{taken.spelled}"
        return self._define(f"{step.name}.{row}", symbol, [content])

    def _signature(self, step: Step) -> str:
        """The function symbol: the operator, its attributes, and its operands' types (a flat sequence of elements
        says nothing about shape)."""
        types = []
        for value in step.operands:
            located = self.trace.values.get(value)
            if located is None:
                types.append("number")
            elif "as_strided" in step.symbol:
                types.append(f"{located.type.spelled}{located.type.strides}{located.type.offset}")
            else:
                types.append(located.type.spelled)
        return f"{step.symbol}<{';'.join(types)}>"

    def _write(
        self,
        index: int,
        step: Step,
        position: int,
        signature: str,
        contents: list[Content],
        extra: list[Content],
        reason: str | None,
    ) -> None:
        value = step.operands[position]
        located = self.trace.values.get(value)
        if located is None:
            return
        source = None
        reason = reason or self._clash(step, position, located)
        if reason:
            written = self._havoc(f"{step.name}!w{position}", reason)
        elif step.contents is Contents.SECOND:
            source = step.operands[1] if step.copy else None
            written = self._copied(step, located.type, contents)
        elif step.in_place:
            written = self._define(step.name, f"{signature}->{located.type.spelled}", [*contents, *extra])
        else:
            written = self._define(f"{step.name}!w{position}", f"{signature}!w{position}", [*contents, *extra])
        self._store(index, step.name, located, written)
        self.trace.writes.append(Write(index, step.name, located.storage, located.region, source))
        for storage, _ in located.maybe:
            content = self._havoc(f"{step.name}!{storage.name}", f"{value} may or may not alias {storage.name}")
            storage.versions.append(Version(content, None, content, index))

    def _clash(self, step: Step, position: int, written: Located) -> str | None:
        """Why what a step writes depends on the order of its element loop; None where it does not. It does where it
        reads elements that it writes, unless it reads and writes element by element."""
        for i, value in enumerate(step.operands):
            read = self.trace.values.get(value)
            if i == position or read is None:
                continue
            if read.storage is not written.storage and all(s is not written.storage for s, _ in read.maybe):
                continue
            how = Relation.OVERLAPPING
            if read.storage is written.storage and read.region is not None and written.region is not None:
                how = relation(read.region, written.region, self.trace.ranges)
            elementwise = step.pointwise or step.contents is Contents.SECOND
            if how is Relation.OVERLAPPING or (how is Relation.SAME and not elementwise):
                return f"{step.name} writes elements that it reads through {value}"
        return None

    def _around(self, step: Step) -> str | None:
        """Why it is not known what a step reads of the memory around its operands; None where it reads none."""
        if not step.reads_around and not (self.looks_around and step.carries_around):
            return None
        for value in step.operands:
            located = self.trace.values.get(value)
            if located is not None and (located.maybe or located.region != located.storage.whole):
                return f"{step.name} may read memory of {located.storage.name} around {value}, which is a view of it"
        return None

    def _copied(self, step: Step, into: TensorType, contents: list[Content]) -> Content:
        """What `copy(self, src)` leaves: the source's contents where types agree, else cast and broadcast."""
        source = self.trace.values.get(step.operands[1])
        symbol = copied(source.type if source else None, into)
        return contents[1] if symbol is None else self._define(step.name, symbol, [contents[1]])

    def _store(self, index: int, name: str, located: Located, written: Content) -> None:
        storage = located.storage
        if located.region == storage.whole and located.region is not None:
            storage.versions.append(Version(written, located.region, written, index))
            return
        before = storage.versions[-1].content
        where = self._place_of(located)
        after = self._define(f"{name}!{storage.name}", "write", [before, written, where])
        storage.versions.append(Version(after, located.region, written, index))

    def _place_of(self, located: Located) -> Content:
        """What says which elements of the storage a value is: its region in the storage's layout, or a content."""
        return located.place or f"place!{located.region} of {located.storage.whole}"

    def _result(
        self,
        index: int,
        step: Step,
        number: int,
        result: Result,
        signature: str,
        contents: list[Content],
        reason: str | None,
    ) -> None:
        value = Value(step.name, number)
        spelled = step.name if number == 0 else f"{step.name}#{number}"
        if result.type is None:
            if result.size is not None and not reason:
                self.trace.numbers[value] = f"size!{result.size}"
            else:
                self.trace.numbers[value] = self._define(spelled, f"{signature}#{number}", contents)
            return
        if result.base is not None and result.base in self.trace.values:
            self._alias(index, step, value, result, signature, contents)
            return
        if reason:
            content = self._havoc(spelled, reason)
        elif result.suffix:
            content = self._define(spelled, f"{signature}{result.suffix}", contents)
        elif self._keeps_first(step, result.type, number):
            content = contents[0] if result.type.dynamic else self.flat.get(contents[0], contents[0])
        elif result.type.dynamic and step.symbol.startswith("aten.view_copy."):
            flat = self.flat.get(contents[0], contents[0])
            content = self._define(spelled, f"{step.symbol}->{result.type.spelled}", [flat, *contents[1:]])
            self.flat[content] = flat
        elif step.contents is Contents.SECOND and not step.writes:
            content = self._copied(step, result.type, contents)
        else:
            suffix = f"#{number}" if len(step.results) > 1 else ""
            content = self._define(spelled, f"{signature}->{result.type.spelled}{suffix}", contents)
        region = region_of(result.type)
        storage = Storage(spelled, region, result.type.nbytes, fresh=True)
        storage.versions.append(Version(content, region, content, index))
        self.trace.storages.append(storage)
        maybe: list[tuple[Storage, int]] = []
        for base in result.maybe:
            located = self.trace.values.get(base)
            if located is not None:
                maybe.append((located.storage, len(located.storage.versions)))
                maybe.extend(located.maybe)
        self.trace.values[value] = Located(storage, region, result.type, content, index, tuple(maybe))

    def _keeps_first(self, step: Step, type_: TensorType, number: int) -> bool:
        """Whether a result holds just the first operand's elements in order."""
        if step.contents is not Contents.FIRST or number or not step.operands:
            return False
        first = self.trace.values.get(step.operands[0])
        return first is not None and keeps_first(first.type, type_, step.same_order)

    def _alias(
        self, index: int, step: Step, value: Value, result: Result, signature: str, contents: list[Content]
    ) -> None:
        assert result.base is not None and result.type is not None
        base = self.trace.values[result.base]
        region: Region | None = None
        if result.same_region:
            region = base.region
        elif base.region is not None and base.region == region_of(base.type):
            region = region_of(result.type)
        place = ""
        if region is None or _depends_on_data(region):
            # Where the view lies is not known here, or only by the contents of other tensors.
            region = None
            symbol = f"{signature}#{value.index}->{result.type.spelled} place"
            place = self._define(f"{value}@", symbol, [self._place_of(base), *contents])
        located = Located(base.storage, region, result.type, "", index, base.maybe, place)
        content = self._contents(located, index)
        self.trace.values[value] = Located(base.storage, region, result.type, content, index, base.maybe, place)

    def _operand(self, index: int, step: Step, operand: int, value: Value) -> Content:
        """What the step sees in an operand; a look that only makes a view, or only asks for a copy's shape, is no
        read."""
        located = self.trace.values.get(value)
        views = bool(step.results) and not step.writes and all(r.base is not None for r in step.results)
        if located is not None and (views or not step.reads or (step.contents is Contents.SECOND and operand == 0)):
            if _from_data((*located.type.shape, *located.type.strides, located.type.offset)):
                return self._contents(located, index)
            return f"shape!{located.type.spelled}"
        return self._read(index, step.name, operand, value)

    def _read(self, index: int, name: str, operand: int, value: Value) -> Content:
        located = self.trace.values.get(value)
        if located is None:
            if value not in self.trace.numbers:
                self.trace.numbers[value] = self._havoc(str(value), f"{value} is no tensor or number that has a model")
            return self.trace.numbers[value]
        seen = self._contents(located, index)
        self.trace.reads.append(Read(index, name, operand, value, located, seen))
        return seen

    def _contents(self, located: Located, index: int) -> Content:
        """What the value's region holds now."""
        for storage, count in located.maybe:
            if len(storage.versions) > count:
                reason = f"{located.storage.name} may or may not alias {storage.name}, which was written meanwhile"
                return self._havoc(f"{located.storage.name}@{index}", reason)
        storage = located.storage
        if located.region is None:
            return self._define(f"{storage.name}@{index}", "read", [storage.versions[-1].content, located.place])
        for version in reversed(storage.versions):
            if located.region == storage.whole:
                return version.content
            if version.region is None:
                break
            how = relation(located.region, version.region, self.trace.ranges)
            if how is Relation.SAME:
                return version.written
            if how is Relation.OVERLAPPING:
                break
        return self._define(f"{storage.name}@{index}", "read", [version.content, self._place_of(located)])

    def _define(self, name: str, symbol: str, operands: list[Content]) -> Content:
        key = (symbol, tuple(operands))
        if key not in self.defined:
            unique = f"{self.trace.prefix}!{name}"
            while unique in self.trace.definitions:
                unique += "'"
            self.trace.definitions[unique] = Definition(unique, symbol, tuple(operands))
            self.defined[key] = unique
        return self.defined[key]

    def _havoc(self, name: str, reason: str) -> Content:
        unique = f"{self.trace.prefix}?{name}"
        while unique in self.trace.unknown:
            unique += "'"
        self.trace.unknown[unique] = reason
        return unique

    def _havoc_storages(self, index: int, name: str, value: Value, reason: str) -> None:
        located = self.trace.values.get(value)
        if located is not None:
            for storage in {s.name: s for s in (located.storage, *(s for s, _ in located.maybe))}.values():
                content = self._havoc(f"{name}!{storage.name}", reason)
                storage.versions.append(Version(content, None, content, index))


def _depends_on_data(region: Region) -> bool:
    """Whether a region has a size or place that contents decide."""
    return _from_data((region.offset, *region.sizes, *region.strides))


def _from_data(sizes: tuple[Size, ...]) -> bool:
    """Whether one of these sizes is decided by contents (holds an unbacked symbol of the export, `u0`)."""
    symbols = {str(symbol) for size in sizes if not isinstance(size, int) for symbol in size.free_symbols}
    return any(name[:1] in ("u", "i") and name[1:].isdigit() for name in symbols)
