"""The process that `copyproof.fuzz.runtime` sends programs to: it loads them, runs them and answers.

A message is pickled: plain bytes, so that no tensor shares memory with a process that may die. For each
`Program` the worker tells its `Stage`s one by one, then answers with an `Answer` or a `Refusal`; a runtime
that aborts leaves the last stage behind.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any


@dataclass(frozen=True)
class Program:
    """A `.pte` file's contents, the flattened inputs of each call, the modules to import first, and for how many
    seconds at most it may run."""

    pte: bytes
    calls: tuple[tuple[Any, ...], ...]
    imports: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Stage:
    """What the worker is about to do, as in "died while <name>"."""

    name: str


@dataclass(frozen=True)
class Answer:
    """For each call, the runtime's outputs and the inputs after it."""

    calls: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]


@dataclass(frozen=True)
class Refusal:
    """Why there is no answer: the message of what was raised."""

    message: str


def serve(connection: Connection, log: str) -> None:
    """Answer programs until the connection closes; what the runtime prints goes to the file named `log`."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.path[:] = pickle.loads(connection.recv_bytes())
    importlib.import_module("executorch.extension.pybindings.portable_lib")
    send(connection, Stage("waiting"))
    while True:
        try:
            program = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        # Ends this process if the runtime hangs and nobody waits any more.
        signal.alarm(int(program.seconds) + 60)
        try:
            send(connection, Answer(tuple(_run(program, connection))))
        except Exception as error:
            message = " ".join(str(error).split()) or type(error).__name__
            send(connection, Refusal(message))
        signal.alarm(0)


def send(connection: Connection, message: object) -> None:
    """Send a message as plain bytes."""
    connection.send_bytes(pickle.dumps(message))


def _run(program: Program, connection: Connection) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    from executorch.extension.pybindings import portable_lib

    from copyproof.fuzz.execution import detached

    for name in program.imports:
        send(connection, Stage(f"importing {name}"))
        importlib.import_module(name)
    send(connection, Stage("loading the program"))
    # Not `executorch.runtime`: its Program.load_method gives every unplanned output new storage after the
    # inputs are set, and a mutated user input is such an output, so it would read as zeros (executorch 1.5.1).
    module = portable_lib._load_for_executorch_from_buffer(program.pte)
    expected = module.method_meta("forward").num_inputs()
    results = []
    for index, inputs in enumerate(program.calls):
        # The runtime would run with whatever its memory holds for the missing ones.
        if len(inputs) != expected:
            raise ValueError(f"call {index} has {len(inputs)} inputs, expected {expected}; pass every input")
        send(connection, Stage(f"running call {index}"))
        outputs = module.run_method("forward", inputs, clone_outputs=True)
        results.append((detached(list(outputs)), detached(list(inputs))))
    return results


if __name__ == "__main__":
    # Under its own name, since messages are pickled by the names of their classes.
    from copyproof.fuzz import worker

    worker.serve(Connection(int(sys.argv[1])), sys.argv[2])
