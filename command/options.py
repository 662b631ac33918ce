"""Options that several commands take. Nothing here imports torch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from copyproof.spec.pipeline import REFERENCE_PASS

Command = TypeVar("Command", bound=Callable[..., Any])

workers = click.option(
    "--workers",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="all cores",
    help="So many processes.",
)
the_pass = click.option(
    "--pass",
    "pass_name",
    metavar="PKG.MOD:FN",
    default=REFERENCE_PASS,
    show_default=True,
    help="The write-back pass; or `shipped`.",
)
progress = click.option("--progress/--no-progress", default=None, help="Show progress.  [default: on a terminal]")


def timeout(each: str) -> Callable[[Command], Command]:
    """`--timeout`: seconds for each of what `each` says."""
    return click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True, max=1e6),
        default=60.0,
        show_default=True,
        help=f"Seconds for each {each}.",
    )


def seconds(name: str, help_text: str, default: float | None = None) -> Callable[[Command], Command]:
    """An option that is a number of seconds for a whole command."""
    return click.option(
        name,
        type=click.FloatRange(min=0, min_open=True),
        callback=_a_number,
        default=default,
        show_default=default is not None,
        help=help_text,
    )


def bounds(command: Command) -> Command:
    """`--targets`, `--steps` and `--outputs`, the most of each."""
    for name, least, most, default, what in (
        ("--outputs", 0, 3, 1, "user outputs"),
        ("--steps", 0, 6, 2, "steps"),
        ("--targets", 1, 4, 2, "targets"),
    ):
        kind = click.IntRange(least, most)
        command = click.option(name, type=kind, default=default, show_default=True, help=f"At most so many {what}.")(
            command
        )
    return command


def survey_folder(help_text: str) -> Callable[[Command], Command]:
    """`--out`: the folder in which surveys keep what is done."""
    return click.option(
        "--out", type=Path, default=Path("copyproof-enumerate"), show_default=True, metavar="DIR", help=help_text
    )


def _a_number(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """A number of seconds, and not `nan`."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of seconds")
    return value
