"""What a machine's plan owes before anything runs: places that are legal, and names that the caller and the next call
can rely on."""

from __future__ import annotations

from copyproof.verify.machine import Delegate, Items, Kernel, Machine, Move, Plain, Tensor, overlap


def misplaced(machine: Machine) -> list[str]:
    """What is wrong with where tensors lie, in sentences: alignment, bytes of a state that something else uses, no
    memory at all, or the caller's memory under another name."""
    faults = []
    states = {}
    for name, index in machine.buffers.items():
        slot = machine.slots[index]
        if isinstance(slot, Tensor) and slot.place is not None:
            states[name] = slot.span
    renamed = named_by_calls(machine)
    given = {*machine.inputs, *machine.outputs, *machine.buffers.values(), *renamed}
    for index in sorted(_used(machine) - given):
        slot = machine.slots[index]
        if isinstance(slot, Tensor) and slot.place is None and not slot.constant and int(slot.type.nbytes):
            faults.append(f"tensor {index} has no memory in the plan, and no contents")
    for index, slot in enumerate(machine.slots):
        if not isinstance(slot, Tensor):
            continue
        if index in machine.inputs and slot.constant:
            faults.append(f"input tensor {index} is a constant of the file")
        if index in machine.outputs and index in renamed and slot.place is None:
            faults.append(
                f"output tensor {index} is the caller's memory, and a branch makes it a name of another tensor, which "
                "the next call then takes for the caller's; lower with alloc_graph_output=True"
            )
        if slot.place is None:
            continue
        arena, start, _ = slot.span
        if start % slot.type.itemsize:
            faults.append(
                f"tensor {index} starts at byte {start} of arena {arena}, no multiple of {slot.type.itemsize}"
            )
        loaded = slot.held is not None and index not in machine.buffers.values()
        for name, span in states.items():
            if overlap(slot.span, span) and (loaded or (slot.span != span and slot.name != name)):
                faults.append(f"tensor {index} lies in bytes of the state {name!r}")
    return faults


def unreliable(machine: Machine) -> str:
    """Why tensors that the caller, or the next call, finds by their own memory may not be what calls name by their
    slots; empty where they are."""
    outside = {*machine.inputs, *machine.buffers.values()}
    viewed = {c.slots[-1] for c in machine.calls if isinstance(c, Kernel) and c.name == "executorch_prim::et_view"}
    moved = {i for call in machine.calls if isinstance(call, Move) for i in (call.source, call.into)}
    for index in sorted(named_by_calls(machine)):
        slot = machine.slots[index]
        if index in outside or (isinstance(slot, Tensor) and slot.constant):
            return f"a call makes tensor {index}, an input, state or constant, a name of another tensor"
        if index in viewed and index in moved:
            return f"tensor {index} is moved, and a view, which has no model"
    for name, index in machine.buffers.items():
        slot = machine.slots[index]
        if isinstance(slot, Tensor) and slot.place is None and not slot.constant:
            return f"buffer {name!r} has no memory in the plan: whoever loads the file must give it some"
    return ""


def named_by_calls(machine: Machine) -> set[int]:
    """The slots that calls make names of other tensors."""
    found = set()
    for call in machine.calls:
        if isinstance(call, Move) and isinstance(machine.slots[call.into], Tensor):
            found.add(call.into)
        elif isinstance(call, Kernel) and call.name == "executorch_prim::et_view":
            found.add(call.slots[-1])
    return found


def computed_by_calls(machine: Machine) -> set[int]:
    """The slots that calls compute numbers into."""
    found: set[int] = set()
    for call in machine.calls:
        returned: tuple[int, ...] = ()
        if isinstance(call, Move):
            returned = (call.into,)
        elif isinstance(call, Delegate):
            returned = call.slots
        elif isinstance(call, Kernel):
            returned = call.slots[-1:] if call.overload is None else call.slots[len(call.overload._schema.arguments) :]
        found.update(index for index in returned if isinstance(machine.slots[index], Plain))
    return found


def _used(machine: Machine) -> set[int]:
    """The slots that calls name, those in lists too."""
    found: set[int] = set()
    for call in machine.calls:
        for index in call.slots if isinstance(call, (Kernel, Delegate)) else ():
            slot = machine.slots[index]
            found.update(i for i in (slot.slots if isinstance(slot, Items) else (index,)) if i is not None)
    return found
