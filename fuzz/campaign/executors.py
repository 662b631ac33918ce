"""Where a campaign's work is done: in processes here, or on a Dask cluster. Both are `concurrent.futures` executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager

from copyproof.spec.errors import BadInput, first_line
from copyproof.verify.exhaustive.processes import processes

Executors = Callable[[], AbstractContextManager[Executor]]
"""Makes an executor; asked again where one broke."""

_TASKS = 40


def pool(workers: int) -> Executors:
    """Processes on this machine, each for some minutes: torch keeps what it has compiled, 20 MB a minute."""
    return lambda: processes(workers, _TASKS)


def cluster(address: str) -> tuple[Executors, int]:
    """The workers of a Dask scheduler, and how many there are.

    Args:
        address: of the scheduler, as `tcp://host:8786`.

    Raises:
        BadInput: dask.distributed is not installed, or nothing answers there.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise BadInput("--scheduler needs dask.distributed; install copyproof[cluster]") from error
    if "://" not in address:
        raise BadInput(f"--scheduler {address!r} is no address; give tcp://HOST:PORT")
    try:
        client = Client(address, timeout=20, set_as_default=False)
        client.wait_for_workers(1, timeout=60)
        threads = sum(client.nthreads().values())
    except (OSError, TimeoutError, ValueError) as error:
        raise BadInput(
            f"--scheduler {address}: no scheduler with a worker answers there ({first_line(error)}); start "
            "`dask scheduler` and `dask worker`"
        ) from error

    @contextmanager
    def executor() -> Iterator[Executor]:
        # Units of work have no side effects, so that any worker may do again what a lost one did not finish.
        with client.get_executor(pure=False, retries=2) as found:
            yield found

    return executor, threads
