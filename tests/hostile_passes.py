"""Passes that place their copies right and harm the program otherwise, or the process that judges them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import ConstantArgument, InputSpec

from copyproof.impl import reference_pass

from .known_wrong import Rewritten, first_write_lost


def placeholders_swapped(program: ExportedProgram) -> Rewritten:
    """Puts the second placeholder before the first."""
    graph_module, signature = reference_pass(program)
    first, second = [n for n in graph_module.graph.nodes if n.op == "placeholder"][:2]
    first.prepend(second)
    return graph_module, signature


def placeholder_dropped(program: ExportedProgram) -> Rewritten:
    """Erases the placeholders that nothing uses."""
    graph_module, signature = reference_pass(program)
    for node in list(graph_module.graph.nodes):
        if node.op == "placeholder" and not node.users:
            graph_module.graph.erase_node(node)
    return graph_module, signature


def state_removed(program: ExportedProgram) -> Rewritten:
    """Empties the state dictionary."""
    result = reference_pass(program)
    program.state_dict.clear()
    return result


def _with_buffers(program: ExportedProgram, made: Any) -> Rewritten:
    result = reference_pass(program)
    for name, value in list(program.state_dict.items()):
        program.state_dict[name] = made(value)
    return result


def state_of_integers(program: ExportedProgram) -> Rewritten:
    """Makes the buffers integers."""
    return _with_buffers(program, lambda value: value.to(torch.int64))


def state_of_negative_zeros(program: ExportedProgram) -> Rewritten:
    """Makes the zeros in buffers negative, in place."""
    return _with_buffers(program, lambda value: value.mul_(-1.0))


def state_shared(program: ExportedProgram) -> Rewritten:
    """Gives all buffers one memory."""
    one = torch.zeros(2, 2)
    return _with_buffers(program, lambda value: one)


def constant_smuggled_in(program: ExportedProgram) -> Rewritten:
    """Adds a constant of a buffer's name."""
    result = reference_pass(program)
    for name in program.state_dict:
        program.constants[name] = torch.ones(2, 2)
    return result


def argument_class_changed(program: ExportedProgram) -> Rewritten:
    """Says that the last input is a constant number."""
    graph_module, signature = reference_pass(program)
    specs = list(signature.input_specs)
    last = specs[-1]
    specs[-1] = InputSpec(last.kind, ConstantArgument(last.arg.name, 5), last.target, last.persistent)
    return graph_module, ExportGraphSignature(specs, signature.output_specs)


def ends_the_process(program: ExportedProgram) -> Rewritten:
    """Calls `sys.exit(0)` on programs with two targets."""
    if len(program.graph_signature.user_inputs_to_mutate) + len(program.graph_signature.buffers_to_mutate) > 1:
        sys.exit(0)
    return reference_pass(program)


class Odd(BaseException):
    """What no handler of Exception catches."""


def raises_something_odd(program: ExportedProgram) -> Rewritten:
    """Raises a BaseException on programs with steps."""
    if any(node.op == "call_function" for node in program.graph.nodes):
        raise Odd("odd")
    return reference_pass(program)


def never_returns(program: ExportedProgram) -> Rewritten:
    """Loops for ever on programs with steps."""
    while any(node.op == "call_function" for node in program.graph.nodes):
        time.sleep(0.1)
    return reference_pass(program)


def loses_the_first_write_and_dies_once(program: ExportedProgram) -> Any:
    """As `known_wrong.first_write_lost`, but the first process that runs it is killed, as a lost worker is."""
    flag = Path(os.environ["COPYPROOF_TEST_DIES_ONCE"])
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return first_write_lost(program)
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_process(program: ExportedProgram) -> Any:
    """Ends the process that it runs in, as nothing can catch."""
    os.kill(os.getpid(), signal.SIGKILL)
