"""Running a `.pte` file in ExecuTorch's real runtime, in a process of its own.

The runtime aborts on what it does not accept, or crashes, or hangs; then the process is given up and the next
program gets a new one. Otherwise the process stays, since starting it takes seconds.

What the runtime returns: first one output for each mutated user input, in the order of the signature, then
the user outputs; mutated buffers do not come back. Whether the caller's tensor changes too depends on the
plan: it does where the input's memory is the caller's (`alloc_graph_input=False`), and keeps the old value
where it is planned. `run_program` therefore takes the new value of a mutated user input from the leading
outputs, if told which inputs are mutated.
"""

from __future__ import annotations

import atexit
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from copyproof.fuzz.execution import Arguments, Call, detached
from copyproof.fuzz.worker import Answer, Program, Refusal, Stage, send

START_SECONDS = 180.0
"""How long a new process may take to import the runtime."""


class RuntimeFailure(Exception):
    """The runtime refused a program, died or did not answer; the message is one sentence."""


def run_program(
    pte: bytes,
    calls: Sequence[Arguments],
    imports: Sequence[str] = (),
    mutated: Sequence[int] = (),
    seconds: float = 120.0,
) -> list[Call]:
    """What the runtime gives for consecutive calls of the method `forward`; `calls` are left as they were.

    Args:
        pte: the contents of a `.pte` file.
        calls: the arguments of each call; the state carries over from one to the next.
        imports: modules to import first, those that register custom kernels.
        mutated: positions of the mutated user inputs, from `execution.mutated_inputs`. As many leading
            outputs are their new values: they are taken off the outputs and put in their places in
            `inputs_after`. If empty, the outputs are all that the runtime returned, and `inputs_after` the
            caller's own tensors.
        seconds: how long the program may take, loading and all calls together.

    Raises:
        RuntimeFailure: the runtime refused the program, died or did not answer in time.
    """
    program = Program(bytes(pte), tuple(detached(arguments) for arguments in calls), tuple(imports), seconds)
    answer = _worker(os.getpid()).run(program, seconds)
    return [_separate(Call(outputs, inputs), mutated) for outputs, inputs in answer.calls]


def _separate(call: Call, mutated: Sequence[int]) -> Call:
    if len(call.outputs) < len(mutated):
        raise RuntimeFailure(
            f"the program returned {len(call.outputs)} outputs, expected the new values of {len(mutated)} "
            "mutated inputs first; lower it again with a pass that keeps every mutation output"
        )
    inputs = list(call.inputs_after)
    for position, value in zip(mutated, call.outputs, strict=False):
        inputs[position] = value
    return Call(call.outputs[len(mutated) :], tuple(inputs))


class _Worker:
    """One process at a time that runs programs, one after another."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._log: Path | None = None

    def run(self, program: Program, seconds: float) -> Answer:
        with self._lock:
            connection, log = self._started()
            printed = log.stat().st_size
            deadline = monotonic() + seconds
            stage = "receiving the program"
            try:
                send(connection, program)
                while isinstance(message := self._receive(deadline), Stage):
                    stage = message.name
            except TimeoutError:
                self.stop()
                raise RuntimeFailure(f"the runtime did not answer within {seconds:g} s while {stage}") from None
            except (EOFError, OSError):
                cause, said = self._cause_of_death(), _first_complaint(log, printed)
                self.stop()
                raise RuntimeFailure(f"the runtime died{cause} while {stage}{said}") from None
            except BaseException:
                # Half an exchange would leave its answer to the next program.
                self.stop()
                raise
            if isinstance(message, Refusal):
                said = _first_complaint(log, printed)
                raise RuntimeFailure(f"the runtime failed while {stage}: {message.message}{said}")
            return message

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        if self._log is not None:
            self._log.unlink(missing_ok=True)
        self._process = self._connection = self._log = None

    def _started(self) -> tuple[Connection, Path]:
        if self._process is not None and self._process.poll() is not None:
            self.stop()
        if self._connection is None or self._log is None:
            descriptor, name = tempfile.mkstemp(prefix="copyproof-runtime-", suffix=".log")
            os.close(descriptor)
            self._log = Path(name)
            self._connection, theirs = Pipe()
            # Not a process of multiprocessing: that would import the caller's main module again, and may not be
            # started from a daemon, such as a worker of a cluster is.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "copyproof.fuzz.worker", str(theirs.fileno()), name],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
            theirs.close()
            try:
                send(self._connection, sys.path)
                self._receive(monotonic() + START_SECONDS)
            except (EOFError, OSError):
                said = _last_line(self._log)
                self.stop()
                raise RuntimeFailure(
                    f"the runtime's process did not start{said}; is copyproof[executorch] installed?"
                ) from None
        return self._connection, self._log

    def _receive(self, deadline: float) -> Any:
        assert self._connection is not None
        left = deadline - monotonic()
        if left <= 0 or not self._connection.poll(left):
            raise TimeoutError
        return pickle.loads(self._connection.recv_bytes())

    def _cause_of_death(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(10)
        except subprocess.TimeoutExpired:
            return ""
        return f" with {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"


@cache
def _worker(process_id: int) -> _Worker:
    """The worker of this process; a forked process has its own, since two cannot share a connection."""
    worker = _Worker()
    atexit.register(worker.stop)
    return worker


def _first_complaint(log: Path, printed: int) -> str:
    """What the runtime logged first since the log was `printed` bytes long; later lines only repeat it."""
    text = log.read_bytes()[printed:].decode(errors="replace")
    found = re.search(r"^\[(?!cpuinfo)\w+\.cpp:\d+\] (.+)$", text, re.MULTILINE)
    return f" ({found[1].strip()})" if found else ""


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f" ({last.strip()})" if last else ""
