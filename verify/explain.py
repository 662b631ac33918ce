"""Why an obligation fails, in the words of the graph: conflict triples with an excerpt, and plain sentences."""

from __future__ import annotations

from copyproof.spec.program import Step, Value
from copyproof.verify.pair import Pair
from copyproof.verify.trace import Read, Write
from copyproof.verify.verdicts import Conflict

_CONTEXT = 1


def conflict(pair: Pair, write: Write, read: Read) -> Conflict:
    """The conflict triple of a write that comes before a read of what it overwrites."""
    last = "placeholder " + write.storage.name if not write.storage.fresh else write.storage.name
    last_step = -1
    for other in pair.memory.writes:
        if other.storage is write.storage and other.step < write.step:
            last, last_step = other.name, other.step
    if write.storage.fresh and last_step < 0:
        last_step = write.storage.versions[0].step
    return Conflict(
        write.storage.name,
        write.name,
        read.label,
        last,
        _right(pair, write, read),
        tuple(_excerpt(pair, {last_step: "W1 last write that R should see", write.step: "W2 write-back"}, read)),
    )


def conflicts_behind(pair: Pair, limit: int) -> list[Conflict]:
    """Triples among all writes of the graph (in-place operators too) that a wrong content can come from."""
    found: list[Conflict] = []
    for write in pair.memory.writes:
        for read in pair.reads_of.get(write.storage.name, ()):
            if read.step <= write.step or read.name == write.name or read.located.step >= write.step:
                continue
            if read.seen not in pair.expected(read) and len(found) < limit:
                found.append(conflict(pair, write, read))
    return found


def state_reason(pair: Pair, target: str) -> str:
    """Why a target does not hold its functional value."""
    _, output = pair.targets[target]
    who = pair.role(target)
    new = output.node_name or output.constant
    writes = [w for w in pair.memory.writes if w.storage.name == target]
    if not writes:
        return f"lost write: nothing writes {who}, whose new value is {new}; a copy_({target}, {new}) is missing"
    names = ", ".join(w.name for w in writes)
    return f"{who} does not hold {new}, its functional value, after the last step; it is written by {names}"


def double_reason(pair: Pair, target: str) -> str:
    """That a target is written back more than once."""
    names = [w.name for w in pair.write_backs if w.storage.name == target]
    return f"doubled write: {pair.role(target)} is written back {len(names)} times, by {', '.join(names)}; keep one"


def output_reason(pair: Pair, index: int, kind: str) -> str:
    """Why a user output is not its functional value."""
    before = pair.original.outputs[index]
    if index >= len(pair.rewritten.outputs):
        return f"output {index} ({before.node_name}) is missing"
    after = pair.rewritten.outputs[index]
    if kind == "type":
        return f"output {index} has another shape or type than {before.node_name}, the original's output {index}"
    others = [
        i
        for i, o in enumerate(pair.original.outputs)
        if (i != index and pair.functional.outputs[i] == pair.memory.outputs[index])
        or (i != index and o.node_name and o.node_name == after.node_name)
    ]
    if others and after.node_name != before.node_name:
        return (
            f"output {index} is in the wrong place: it returns {after.node_name or after.constant}, the value of the "
            f"original's output {others[0]}, and should return {before.node_name or before.constant}"
        )
    target = _input_behind(pair, after.value)
    if target in pair.targets:
        return (
            f"output {index} returns {after.node_name}, which aliases {pair.role(target)} and is read after its "
            "write-back; clone it before the write-back"
        )
    if after.node_name == before.node_name:
        return (
            f"output {index} ({after.node_name}) does not hold its functional value: what it is computed from differs"
        )
    return f"output {index} ({after.node_name or after.constant}) does not hold what {before.node_name} does"


def frame_reason(pair: Pair, name: str) -> str:
    """Which write changes something that is no target."""
    writes = [w.name for w in pair.memory.writes if w.storage.name == name]
    return (
        f"{', '.join(writes) or 'an operation'} writes {pair.role(name)}, which the signature does not list as mutated"
    )


def signature_reason(pair: Pair, index: int, what: str) -> str:
    """What is wrong with the signature at an index."""
    if what == "input":
        specs = pair.rewritten.input_specs
        found = specs[index] if index < len(specs) else "missing"
        wanted = pair.original.input_specs[index] if index < len(pair.original.input_specs) else "missing"
        return f"input spec {index} is {found}, the original's is {wanted}"
    count = (len(pair.original.outputs), len(pair.rewritten.outputs))
    if what == "count":
        return f"the rewritten graph has {count[1]} outputs and specs, the original {count[0]}"
    before, after = pair.original.outputs[index], pair.rewritten.outputs[index]
    if what == "name":
        return (
            f"output spec {index} ({after.kind} of {pair.role(after.target) if after.target else 'the user'}) names "
            f"{after.spec_name!r}, but output {index} of the graph is {after.node_name!r}"
        )
    if what == "storage":
        return (
            f"mutation output {index} names {after.node_name!r}, which does not lie in the storage of "
            f"{pair.role(before.target or '')}"
        )
    return (
        f"output spec {index} is {after.kind} of {after.target or 'the user'}, "
        f"the original's is {before.kind} of {before.target or 'the user'}"
    )


def _input_behind(pair: Pair, value: Value | None) -> str:
    located = pair.memory.values.get(value) if value is not None else None
    return located.storage.name if located is not None and not located.storage.fresh else ""


def _right(pair: Pair, write: Write, read: Read) -> str:
    """What would have been right: the earliest legal step of the write-back."""
    if read.name == "output":
        before = pair.original.outputs[read.operand].node_name if read.operand < len(pair.original.outputs) else ""
        if before and before != pair.rewritten.outputs[read.operand].node_name and before in pair.original_steps:
            return f"output {read.operand} should return {before}"
        return f"clone {read.value} before {write.name} and return the clone: a user output is read after the last step"
    stale = [
        r
        for r in pair.reads_of.get(write.storage.name, ())
        if r.name != "output" and r.name != write.name and (r.step < write.step or r.seen not in pair.expected(r))
    ]
    last = max(stale, key=lambda r: r.step, default=read)
    source = pair.memory.values.get(write.copy) if write.copy is not None else None
    if source is not None and source.step > last.step:
        return f"{write.name} is legal only after {pair.rewritten.steps[source.step].name}, which defines its source"
    return f"the earliest legal step of {write.name} is right after {last.name}, the last reader of the old contents"


def _excerpt(pair: Pair, marks: dict[int, str], read: Read) -> list[str]:
    """The graph around the marked steps, a line for each step, `...` for what is left out."""
    steps = pair.rewritten.steps
    label = f"R  stale read of {read.value}"
    marks = {**marks, read.step: label if read.name != "output" else f"R  stale read: output {read.operand}"}
    wanted = sorted(
        {i for m in marks for i in range(m - _CONTEXT, m + _CONTEXT + 1) if 0 <= i < len(steps)}
        | {i for i in (read.located.step,) if 0 <= i < len(steps)}
        | {len(steps) for m in marks if m == len(steps)}
    )
    lines: list[str] = []
    if -1 in marks:
        lines.append(f"{'':>5}  {read.located.storage.name} = placeholder    <-- {marks[-1]}")
    previous = -1
    for i in wanted:
        if i != previous + 1:
            lines.append(f"{'':>5}  ...")
        text = spelled(steps[i]) if i < len(steps) else f"return ({', '.join(_outputs(pair))})"
        mark = f"    <-- {marks[i]}" if i in marks else ""
        lines.append(f"{i:>5}  {text}{mark}")
        previous = i
    return lines


def _outputs(pair: Pair) -> list[str]:
    names = [o.node_name or o.constant for o in pair.rewritten.outputs]
    return names if len(names) <= 8 else [*names[:8], "..."]


def spelled(step: Step) -> str:
    """One line for a step: `add_1 = aten.add.Tensor(x, y)`."""
    if step.lowered:
        return f"{step.name} = view of {step.results[0].base}, once lowered"
    operator = step.symbol.split("(", 1)[0]
    if step.in_place:
        head, overload = operator.rsplit(".", 1)
        operator = f"{head}_.{overload}"
    return f"{step.name} = {operator}({', '.join(map(str, step.operands))})"
