"""SHARED: state that several methods of a file have in common lies in the same bytes of the same arena in each."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from copyproof.verify.machine import Machine, Span, Tensor, overlap


def sharing(machines: Mapping[str, Machine], method: str, buffers: Collection[str]) -> list[str]:
    """What is wrong with the state that methods share, in sentences.

    Args:
        machines: the methods of a file, by name; buffers of the same qualified name are the same state.
        method: one of them.
        buffers: the qualified names of the buffers that the model has in this method.
    """
    faults = [
        f"the state {name!r} of {other} is a constant in {method}; "
        "lower with MemoryPlanningPass(share_mutable_buffers=True)"
        for other, machine in machines.items()
        for name in machine.buffers
        if name in buffers and name not in machines[method].buffers
    ]
    homes: dict[str, tuple[str, Span | None]] = {}
    for method, machine in machines.items():
        for name, span in _states(machine).items():
            first, home = homes.setdefault(name, (method, span))
            if span != home:
                faults.append(
                    f"the state {name!r} lies in {_told(home)} in {first}, and in {_told(span)} in {method}; "
                    "lower with MemoryPlanningPass(share_mutable_buffers=True)"
                )
    for name, (first, home) in homes.items():
        if home is None or sum(name in machine.buffers for machine in machines.values()) < 2:
            continue
        for method, machine in machines.items():
            for index, slot in enumerate(machine.slots):
                if not isinstance(slot, Tensor) or slot.place is None or slot.name == name:
                    continue
                if overlap(slot.span, home) and not (name in machine.buffers and slot.span == home):
                    faults.append(
                        f"tensor {index} of {method} lies in the bytes of the state {name!r}, which {first} shares; "
                        "lower with MemoryPlanningPass(share_mutable_buffers=True)"
                    )
                    break
    return faults


def _states(machine: Machine) -> dict[str, Span | None]:
    found: dict[str, Span | None] = {}
    for name, index in machine.buffers.items():
        slot = machine.slots[index]
        found[name] = slot.span if isinstance(slot, Tensor) and slot.place is not None else None
    return found


def _told(span: Span | None) -> str:
    return "no planned memory" if span is None else f"bytes {span[1]} to {span[2]} of arena {span[0]}"
