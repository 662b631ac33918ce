"""Reading models, passes and rewritten programs, and writing rewritten programs.

Everything that a user can get wrong becomes one sentence, as `BadInput`.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._export.verifier import TrainingIRVerifier
from torch.export import ExportedProgram

from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.pipeline import as_pair, at_write_back, copy_of
from copyproof.verify import Report, prove, prove_pass


def quiet() -> None:
    """Keeps the libraries' warnings and log lines out of the report."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)


def import_modules(names: Sequence[str]) -> None:
    """Imports modules that register custom operators, from the current folder too.

    Raises:
        BadInput: one cannot be imported.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise BadInput(
                f"--import {name} failed: {first_line(error)}; give a module that Python can import"
            ) from error


def named_pass(name: str) -> Callable[[ExportedProgram], Any]:
    """The pass that `PKG.MOD:FN` names.

    Raises:
        BadInput: the name has another form, or cannot be imported, or is not callable.
    """
    module_name, _, function = name.partition(":")
    if not module_name or not function:
        raise BadInput(f"--pass {name!r} is not of the form pkg.mod:fn, as my_passes.early:my_pass")
    import_modules(())
    try:
        found: Any = importlib.import_module(module_name)
        for part in function.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"the pass {name!r} cannot be imported: {first_line(error)}; "
            "give pkg.mod:fn of a module on the Python path or in this folder"
        ) from error
    if not callable(found):
        raise BadInput(
            f"the pass {name!r} is a {type(found).__name__}, expected a callable that takes an ExportedProgram"
        )
    return found


def require_folder(folder: Path) -> None:
    """Makes sure that a folder is there.

    Raises:
        BadInput: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--emit-smt2 {folder}: {error.strerror}; give a folder that can be written") from error


def load_model(name: str, dialect: str, preserve: Sequence[str] = ()) -> ExportedProgram:
    """The program of a `.pt2` file that `torch.export.save` wrote, at the point where write-backs are inserted.

    Args:
        name: the file.
        dialect: "edge" to bring it there by ExecuTorch's pipeline, "aten" to keep it in functional core ATen.
        preserve: operators that `to_edge` must not decompose, as `aten.linear.default`.

    Raises:
        BadInput: there is no such file, it is no exported program, or it cannot be brought there.
    """
    if _is_edge(name):
        raise BadInput(
            f"{name} is an Edge program, as `copyproof place` writes it; give the model that torch.export.save wrote, "
            "and this file after it"
        )
    exported = _load(name, torch.export.load, "torch.export.save wrote it")
    if dialect == "aten":
        if preserve:
            raise BadInput("--preserve is about to_edge, which --dialect aten leaves out; drop one of the two")
        try:
            return exported.run_decompositions()
        except Exception as error:
            raise BadInput(f"run_decompositions() failed on {name}: {first_line(error)}; try --dialect edge") from error
    try:
        from executorch.exir import EdgeCompileConfig, to_edge
    except ImportError as error:
        raise BadInput("executorch is not installed; install copyproof[executorch], or use --dialect aten") from error
    config = EdgeCompileConfig(_check_ir_validity=False, preserve_ops=[_operator(op) for op in preserve])
    try:
        return at_write_back(to_edge(exported, compile_config=config))["forward"]
    except Exception as error:
        raise BadInput(
            f"ExecuTorch's pipeline fails on {name} before the write-backs: {first_line(error)}; "
            "lower it with to_edge alone to see where, or use --dialect aten"
        ) from error


def load_rewritten(name: str) -> ExportedProgram:
    """A rewritten program: an Edge program that executorch's serializer wrote, or an ATen one of torch.export.save.

    Raises:
        BadInput: there is no such file, or it is neither.
    """
    if not _is_edge(name):
        return _load(name, torch.export.load, "torch.export.save or `copyproof place` wrote it")
    try:
        from executorch.exir.serde.serialize import load
    except ImportError as error:
        raise BadInput(f"{name} is an Edge program; install copyproof[executorch] to read it") from error
    return _load(name, load, "`copyproof place` wrote it")


def proved(
    model: str,
    rewritten: str | None,
    write_back_pass: Callable[[ExportedProgram], Any],
    dialect: str,
    preserve: Sequence[str],
    timeout: float,
    keep_queries: Path | None,
) -> Report:
    """The report on a model and its rewritten program, or on what the pass makes of the model.

    Raises:
        BadInput: a file, the pass, or what it returned cannot be judged.
    """
    original = load_model(model, dialect, preserve)
    given = load_rewritten(rewritten) if rewritten is not None else None
    try:
        # What a pass prints must not stand among what a machine reads.
        with redirect_stdout(sys.stderr):
            if given is not None:
                return prove(original, given, timeout=timeout, keep_queries=keep_queries)
            return prove_pass(original, write_back_pass, timeout=timeout, keep_queries=keep_queries)
    except BadInput as error:
        raise BadInput(f"{rewritten or model}: {error}") from error


def proved_file(model: str, file: str, preserve: Sequence[str], timeout: float, keep_queries: Path | None) -> Report:
    """The report on a model and a `.pte` file.

    Raises:
        BadInput: the model cannot be brought to the write-backs, or the file cannot be read.
    """
    if not Path(file).is_file():
        raise BadInput(f"there is no file {file!r}; give a .pte file that ExecuTorch wrote")
    original = load_model(model, "edge", preserve)
    from copyproof.verify.program import prove_program

    try:
        return prove_program(original, Path(file).read_bytes(), timeout=timeout, keep_queries=keep_queries)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from error


@dataclass(frozen=True)
class Placed:
    """A model and what early and end placement make of it."""

    original: ExportedProgram
    rewritten: ExportedProgram
    at_end: ExportedProgram


def placed(original: ExportedProgram) -> Placed:
    """Places the write-backs of a program by the reference pass, and for comparison at the end.

    Raises:
        BadInput: its signature does not fit its graph.
    """
    from copyproof.impl import end_placement, reference_pass

    results = []
    for write_back_pass in (reference_pass, end_placement()):
        program = copy_of(original)
        try:
            _, signature = as_pair(write_back_pass(program))
        except ValueError as error:
            raise BadInput(str(error)) from error
        # The constructor would refuse a graph that writes; executorch's own passes set the signature this way too.
        program._graph_signature = signature
        results.append(program)
    return Placed(original, *results)


def save(program: ExportedProgram, name: str, dialect: str) -> None:
    """Writes a rewritten program; a file that is there already is replaced only once the new one is complete.

    Raises:
        BadInput: the file cannot be written, or the serializer refuses the program.
    """
    path = Path(name)
    partial = path.with_name(f".{path.name}.partial.pt2")
    try:
        if dialect == "edge":
            from executorch.exir.serde.serialize import save as save_edge

            save_edge(program, str(partial))
        else:
            # Functional ATen's verifier would refuse a graph that writes.
            program._verifiers = [TrainingIRVerifier]
            torch.export.save(program, str(partial))
        os.replace(partial, path)
    except OSError as error:
        raise BadInput(f"{name} cannot be written: {error.strerror}; give a file in a folder of yours") from error
    except Exception as error:
        hint = "try --dialect aten, which serializes all higher-order operators" if dialect == "edge" else "report it"
        raise BadInput(f"the rewritten program cannot be saved: {first_line(error)[:200]}; {hint}") from error
    finally:
        partial.unlink(missing_ok=True)


def require_output(name: str, model: str) -> None:
    """Makes sure that a rewritten program can be written to a file.

    Raises:
        BadInput: it is the model itself, a folder, no .pt2, or in a folder that is not there.
    """
    path = Path(name)
    if path.suffix != ".pt2":
        raise BadInput(f"the output {name} must end in .pt2")
    if path.is_dir():
        raise BadInput(f"the output {name} is a folder; give a file")
    if not path.parent.is_dir():
        raise BadInput(f"the folder of the output {name} is not there; make it first")
    if path.exists() and Path(model).exists() and path.samefile(model):
        raise BadInput(f"the output {name} is the model itself, which would be lost; give another file")


def _load(name: str, load: Callable[[str], ExportedProgram], writer: str) -> ExportedProgram:
    _require_archive(name)
    causes = _Causes()
    logger = logging.getLogger("torch.export")
    logging.disable(logging.NOTSET)
    logger.addHandler(causes)
    propagate, logger.propagate = logger.propagate, False
    try:
        return load(name)
    except Exception as error:
        cause = causes.found or error
        if "archive_format" in str(cause):
            raise BadInput(f"{name} is no exported program, though it is an archive; check that {writer}") from error
        hint = "if it uses custom operators, name their module with --import; else check that"
        raise BadInput(f"{name} cannot be loaded: {first_line(cause)[:200]}; {hint} {writer}") from error
    finally:
        logger.propagate = propagate
        logger.removeHandler(causes)
        logging.disable(logging.ERROR)


class _Causes(logging.Handler):
    """Keeps the exception that torch.export.load logs before it raises one that does not name it."""

    found: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found = record.exc_info[1]


def _is_edge(name: str) -> bool:
    """Whether a file is a program of executorch's serializer."""
    _require_archive(name)
    with zipfile.ZipFile(name) as archive:
        return "serialized_exported_program.json" in archive.namelist()


def _require_archive(name: str) -> None:
    path = Path(name)
    if name and path.is_dir():
        raise BadInput(f"{name} is a folder; give a .pt2 file")
    if not path.is_file():
        raise BadInput(f"there is no file {name!r}; give a .pt2 file that torch.export.save wrote")
    if not zipfile.is_zipfile(path):
        raise BadInput(f"{name} is not a .pt2 file, or is cut off; write it again with torch.export.save")


def _operator(name: str) -> torch._ops.OpOverload:
    found: Any = torch.ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except (AttributeError, RuntimeError):
        found = None
    if not isinstance(found, torch._ops.OpOverload):
        raise BadInput(f"--preserve {name}: there is no such operator; write it as aten.linear.default")
    return found
