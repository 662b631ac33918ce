"""Passes by name: loading one, the rule that it says it follows, and telling whether its source is still the same."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.pipeline import SHIPPED
from copyproof.spec.rule import Rule


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


def folder_of(module: str) -> Path:
    """The folder that must be on the path for a module to be found."""
    top = importlib.import_module(module.split(".")[0])
    file = getattr(top, "__file__", None)
    if file is None:
        paths = list(getattr(top, "__path__", ["."]))
        return Path(paths[0]).resolve().parent
    path = Path(file).resolve()
    return path.parent.parent if path.name == "__init__.py" else path.parent


def rule_of(write_back_pass: Any) -> Rule | None:
    """The rule that a pass says it follows, by its attribute `rule`; None where it says none."""
    rule = getattr(write_back_pass, "rule", None)
    return rule if isinstance(rule, Rule) else None


def run_pass(write_back_pass: Callable[[Any], Any], program: ExportedProgram) -> Any:
    """What a pass returns for a program, which it may rewrite.

    Raises:
        BadInput: the pass raises anything, or ends the process by `sys.exit`.
    """
    try:
        return write_back_pass(program)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a verdict must not look like what a pass raises
        name = getattr(write_back_pass, "__name__", type(write_back_pass).__name__)
        raise BadInput(
            f"the pass {name!r} raised {first_line(error)}; run it on this program alone to see where"
        ) from error


def raised_at(error: BaseException) -> str:
    """Where a pass raised what `run_pass` tells of, as a sentence; empty where that is not known.

    Args:
        error: what `run_pass` raised.
    """
    frames = traceback.extract_tb(error.__cause__.__traceback__) if error.__cause__ is not None else []
    # The first frame is run_pass itself.
    return f"raised in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else ""


def fingerprint(name: str) -> str:
    """A digest of what decides what a pass does and how it is judged: the source files of its own package and of all
    loaded modules that are not installed, those of copyproof, and the versions of torch, executorch and z3."""
    named_pass(name)
    own = (SHIPPED if name == "shipped" else name).partition(":")[0].split(".")[0]
    digest = hashlib.sha256()
    for package in ("torch", "executorch", "z3-solver"):
        try:
            digest.update(f"{package} {importlib.metadata.version(package)}\n".encode())
        except importlib.metadata.PackageNotFoundError:
            digest.update(f"no {package}\n".encode())
    files = {path for package in _JUDGES for path in _sources(package)}
    if own not in ("copyproof", "torch", "executorch"):
        files.update(_sources(own))
    files.update(_loaded_of_the_user())
    for path in sorted(files):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


_JUDGES = ("copyproof.spec", "copyproof.verify", "copyproof.impl")


def _sources(package: str) -> list[Path]:
    """The source files of a package, or of a module that is none."""
    loaded = importlib.import_module(package)
    folders = getattr(loaded, "__path__", None)
    if folders is None:
        return [Path(loaded.__file__)] if loaded.__file__ else []
    return [path for folder in folders for path in Path(folder).rglob("*.py")]


def _loaded_of_the_user() -> list[Path]:
    """The files of loaded modules that are neither Python's own, nor installed, nor copyproof's."""
    installed = [Path(sysconfig.get_paths()[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py") or name.split(".")[0] in ("copyproof", "__main__", "__mp_main__"):
            continue
        path = Path(file).resolve()
        if path.exists() and not any(path.is_relative_to(folder) for folder in installed):
            found.append(path)
    return found
