"""How a command ends: exit codes, and one sentence where it cannot do what it was asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from copyproof.spec.obligations import Verdict


def code_of(verdict: Verdict) -> int:
    """The exit code of a verdict: 0 proved, 1 refuted, 3 unknown."""
    return {"PROVED": 0, "REFUTED": 1, "UNKNOWN": 3}[verdict.value]


def bug(name: str, error: Exception) -> str:
    """What to say where copyproof itself fails on something."""
    from copyproof.spec.errors import first_line

    return (
        f"{name}: copyproof itself fails on it with {first_line(error)}; please report it with the model and the pass"
    )


def fail(message: str, as_json: bool = False) -> None:
    """Says what is wrong, and ends with exit code 2."""
    click.echo(f"copyproof: {message}", err=True)
    if as_json:
        click.echo(json.dumps({"error": message}))
    sys.exit(2)


@contextmanager
def failing(name: str, as_json: bool = False) -> Iterator[None]:
    """Within this context bad input, and a fault of copyproof's own, end the command with one sentence; an interrupt
    with exit code 130."""
    from copyproof.spec.errors import BadInput

    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as error:
        fail(f"{name}: something that was called ended the process (sys.exit({error.code!r})); no verdict", as_json)
    except BadInput as error:
        fail(str(error), as_json)
    except Exception as error:
        fail(bug(name, error), as_json)
