"""Which placeholder an output spec of an export's signature mutates."""

from __future__ import annotations

from typing import Any

from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec

_MUTATED_KINDS = {
    OutputKind.BUFFER_MUTATION: InputKind.BUFFER,
    OutputKind.PARAMETER_MUTATION: InputKind.PARAMETER,
}
MUTATIONS = frozenset({*_MUTATED_KINDS, OutputKind.USER_INPUT_MUTATION})
"""The kinds of output that are a target's new value; all others are outputs proper."""


def mutated_placeholder(spec: OutputSpec, signature: ExportGraphSignature) -> str | None:
    """The name of the placeholder that `spec` says is mutated; None where it is no mutation, or names no input.

    A mutated user input is named by its placeholder, a buffer or parameter by its qualified name; the two may be
    spelled alike.
    """
    if spec.kind not in MUTATIONS:
        return None
    for given in signature.input_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            if given.kind is InputKind.USER_INPUT and getattr(given.arg, "name", None) == spec.target:
                return spec.target
        elif given.kind is _MUTATED_KINDS[spec.kind] and given.target == spec.target:
            return str(given.arg.name)
    return None


def held(program: ExportedProgram, name: str | None) -> Any:
    """What a program holds under a qualified name: a parameter, buffer or constant; None where there is none."""
    return program.state_dict.get(name or "", program.constants.get(name or ""))
