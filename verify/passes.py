"""Passes by name: loading one, the rule that it says it follows, and telling whether its source is still the same."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.pipeline import SHIPPED
from copyproof.spec.rule import Rule

REFERENCE_PASS = "copyproof.impl:reference_pass"
"""What is proved where no pass is named."""


def named_pass(name: str) -> Callable[[Any], Any]:
    """The pass that `PKG.MOD:FN` names, or ExecuTorch's where the name is `shipped`.

    Raises:
        BadInput: the name has another form, or cannot be imported, or is not callable.
    """
    found = named("--pass", SHIPPED if name == "shipped" else name)
    if not callable(found):
        raise BadInput(
            f"the pass {name!r} is a {type(found).__name__}, expected a callable that takes an ExportedProgram"
        )
    return found


def named(option: str, name: str) -> Any:
    """What `PKG.MOD:NAME`, given to an option, names; the module may lie in the current folder.

    Raises:
        BadInput: the name has another form, or cannot be imported.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise BadInput(f"{option} {name!r} is not of the form pkg.mod:name, as my_passes.early:my_pass")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"{option} {name!r} cannot be imported: {first_line(error)}; "
            "give pkg.mod:name of a module on the Python path or in this folder"
        ) from error
    return found


def rule_of(write_back_pass: Any) -> Rule | None:
    """The rule that a pass says it follows, by its attribute `rule`; None where it says none."""
    rule = getattr(write_back_pass, "rule", None)
    return rule if isinstance(rule, Rule) else None


def fingerprint(name: str) -> str:
    """A digest of what decides what a pass does and how it is judged: the source files of its own package (or of its
    module alone) and of copyproof, and the versions of torch, executorch and z3."""
    named_pass(name)
    module = (SHIPPED if name == "shipped" else name).partition(":")[0].split(".")
    digest = hashlib.sha256()
    for package in ("torch", "executorch", "z3-solver"):
        try:
            digest.update(f"{package} {importlib.metadata.version(package)}\n".encode())
        except importlib.metadata.PackageNotFoundError:
            digest.update(f"no {package}\n".encode())
    own = module[: 2 if module[0] == "copyproof" else 1]
    for package in ("copyproof.spec", "copyproof.verify", ".".join(own)):
        if package not in ("torch", "executorch"):
            for path in _sources(package):
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _sources(package: str) -> list[Path]:
    """The source files of a package, or of a module that is none."""
    loaded = importlib.import_module(package)
    folders = getattr(loaded, "__path__", None)
    if folders is None:
        return [Path(loaded.__file__)] if loaded.__file__ else []
    return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
