"""Issues that are known: which failures are theirs, why they are there, and a program that shows each."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from copyproof.fuzz.campaign.levels import Program, program_of
from copyproof.spec.errors import BadInput

OWN = Path(__file__).with_name("known.toml")
"""What is known of torch and executorch in the versions that copyproof is for."""

_FIELDS = {"name", "signature", "why", "where", "program", "passes", "pipeline"}


@dataclass(frozen=True)
class Known:
    """A known issue.

    Attributes:
        name: what it is called.
        signature: of its failures, with `*` for what may differ.
        why: what is wrong.
        where: where it was reported, or seen.
        program: a module, or a graph, that shows it.
        passes: the passes that it is about, by name; empty for all.
        pipeline: the pipeline that shows it.
    """

    name: str
    signature: str
    why: str
    where: str
    program: Program
    passes: tuple[str, ...]
    pipeline: str

    def applies(self, pass_name: str) -> bool:
        """Whether it is about a pass."""
        return not self.passes or pass_name in self.passes

    def matches(self, signature: str) -> bool:
        """Whether a failure is one of its own."""
        return fnmatchcase(signature, self.signature.replace("[", "[[]"))


def known_in(path: Path) -> list[Known]:
    """The issues that a file knows.

    Raises:
        BadInput: there is no such file, or it is not of this form.
    """
    try:
        entries = tomllib.loads(path.read_text())["known"]
        found = []
        for entry in entries:
            if unknown := set(entry) - _FIELDS:
                raise BadInput(
                    f"{path}: an entry has {', '.join(sorted(unknown))}; it may have {', '.join(sorted(_FIELDS))}"
                )
            program = program_of(json.loads(entry["program"]))
            passes = tuple(entry.get("passes", ()))
            pipeline = entry.get("pipeline", "shipped")
            found.append(
                Known(entry["name"], entry["signature"], entry["why"], entry["where"], program, passes, pipeline)
            )
        return found
    except BadInput:
        raise
    except OSError as error:
        raise BadInput(f"--known {path}: {error.strerror}; give a file of known issues") from error
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise BadInput(
            f"--known {path} is no file of known issues ({what}); each is a [[known]] with name, signature, why, "
            "where and program"
        ) from error


def name_of(known: Sequence[Known], signature: str, pass_name: str) -> str:
    """The known issue that a failure is, by name; empty where it is none."""
    return next((k.name for k in known if k.applies(pass_name) and k.matches(signature)), "")
