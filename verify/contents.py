"""The contents that programs carry: parameters, buffers and constants, compared byte by byte."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from copyproof.spec.signature import held
from copyproof.verify.pair import Pair
from copyproof.verify.spelling import raw_bytes

_HELD = (InputKind.BUFFER, InputKind.PARAMETER, InputKind.CONSTANT_TENSOR)


def changed_contents(original: ExportedProgram, rewritten: ExportedProgram) -> str:
    """How the rewritten program's parameters, buffers and constants differ from the original's; empty where not."""
    before = {**original.state_dict, **original.constants}
    after = {**rewritten.state_dict, **rewritten.constants}
    for name, value in before.items():
        if not isinstance(value, torch.Tensor):
            continue
        if name not in after:
            return f"{name!r} is missing from the rewritten program"
        if _described(value) != _described(after[name]):
            return f"{name!r} is {_described(after[name])[0]} in the rewritten program, not {_described(value)[0]}"
        if raw_bytes(value) != raw_bytes(after[name]):
            return f"{name!r} starts with other contents than in the original"
    return ""


def shared_memory(program: ExportedProgram, pair: Pair) -> str:
    """Why inputs that share memory cannot be judged: one of them is written; empty where there are none."""
    written = {write.storage.name for write in pair.memory.writes} | set(pair.targets)
    owner: dict[int, str] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind not in _HELD:
            continue
        value = held(program, spec.target)
        pointer = _pointer(value)
        if not pointer:
            continue
        first = owner.setdefault(pointer, spec.arg.name)
        if first != spec.arg.name and {first, spec.arg.name} & written:
            return f"{pair.role(first)} and {pair.role(spec.arg.name)} share memory, which the model does not know"
    return ""


def _pointer(value: Any) -> int:
    """The address of a tensor's storage; 0 for an empty one, a fake one, or no tensor."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return 0
    try:
        return value.untyped_storage().data_ptr()
    except RuntimeError:
        return 0


def _described(value: Any) -> tuple[str, Any]:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__, None
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}", value.stride()
