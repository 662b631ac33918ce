"""An end to programs that never come to one, as where a pass does not return: the process that runs them ends."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 300.0
"""How many seconds one program may take; the runtime and each proof have limits of their own, far below."""


@contextmanager
def watched(seconds: float = PATIENCE) -> Iterator[Callable[[], None]]:
    """Within this context the process ends, whatever it is at, where a program takes longer than so many seconds. Gives
    a function that is to be called before each program."""
    with Path(os.devnull).open("w") as nowhere:

        def begins() -> None:
            faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)

        begins()
        try:
            yield begins
        finally:
            faulthandler.cancel_dump_traceback_later()
