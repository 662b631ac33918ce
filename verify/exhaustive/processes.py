"""Processes that a pass runs in: they end with whoever waits for them, and at once when nobody does any more."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import torch

from copyproof.spec.errors import BadInput


@contextmanager
def processes(workers: int, tasks: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """A pool of so many processes. At the end of the context what still runs in them is ended.

    Args:
        workers: how many.
        tasks: after how many tasks a process makes room for a new one; None for never.

    Raises:
        BadInput: a process died while the pass ran in it.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _set_up, max_tasks_per_child=tasks)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise BadInput(
            "a process died while the pass ran in it; prove the pass on one model after another to see where"
        ) from error
    finally:
        started = list((pool._processes or {}).values())
        for process in started:
            process.terminate()
        # Waited for, since what processes share is only given back then.
        pool.shutdown(cancel_futures=True)


def _set_up() -> None:
    """Sets up a process: an interrupt is for the one that waits for it, and it ends with that one."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def _end_with(parent: Any) -> None:
    """Ends this process once its parent is gone, however that ended."""
    parent.join()
    os._exit(1)
