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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch._export.verifier import TrainingIRVerifier
from torch.export import ExportedProgram

from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.obligations import Verdict
from copyproof.spec.pipeline import as_pair, at_write_back, copy_of, standing_in
from copyproof.verify import Report, prove, prove_pass
from copyproof.verify.passes import named


def quiet() -> None:
    """Keeps the libraries' warnings and log lines out of the report, those of processes that are started too."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
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


def require_folder(folder: Path) -> None:
    """Makes sure that a folder is there.

    Raises:
        BadInput: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--emit-smt2 {folder}: {error.strerror}; give a folder that can be written") from error


@dataclass(frozen=True)
class Model:
    """A model, and what brings it into the Edge dialect.

    Attributes:
        name: the file that `torch.export.save` wrote.
        preserve: operators that `to_edge` must not decompose, as `aten.linear.default`.
        partitioner: `pkg.mod:Class` of the partitioner that delegates parts of it; None to delegate nothing.
    """

    name: str
    preserve: Sequence[str] = ()
    partitioner: str | None = None

    def exported(self) -> ExportedProgram:
        """The exported program.

        Raises:
            BadInput: there is no such file, or it is no exported program.
        """
        if _is_edge(self.name):
            raise BadInput(
                f"{self.name} is an Edge program, as `copyproof place` writes it; give the model that "
                "torch.export.save wrote, and this file after it"
            )
        return _load(self.name, torch.export.load, "torch.export.save wrote it")

    def edge(self, exported: ExportedProgram) -> Any:
        """The model in the Edge dialect, an EdgeProgramManager.

        Raises:
            BadInput: executorch is not installed, or its pipeline fails on the model.
        """
        try:
            from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower
        except ImportError as error:
            raise BadInput(
                "executorch is not installed; install copyproof[executorch], or use --dialect aten"
            ) from error
        config = EdgeCompileConfig(_check_ir_validity=False, preserve_ops=[_operator(op) for op in self.preserve])
        partitioner = None if self.partitioner is None else named("--partitioner", self.partitioner)
        try:
            if partitioner is None:
                return to_edge(exported, compile_config=config)
            return to_edge_transform_and_lower(exported, partitioner=[partitioner()], compile_config=config)
        except Exception as error:
            raise BadInput(
                f"ExecuTorch's pipeline fails on {self.name} before the write-backs: {first_line(error)}; "
                "lower it with to_edge alone to see where, or use --dialect aten"
            ) from error

    def at_write_back(self, dialect: str) -> ExportedProgram:
        """The program at the point where write-backs are inserted.

        Args:
            dialect: "edge" to bring it there by ExecuTorch's pipeline, "aten" to keep it in functional core ATen.

        Raises:
            BadInput: it cannot be brought there.
        """
        exported = self.exported()
        if dialect == "aten":
            if self.preserve or self.partitioner:
                raise BadInput(
                    "--preserve and --partitioner are about to_edge, which --dialect aten leaves out; "
                    "drop one of the two"
                )
            try:
                return exported.run_decompositions()
            except Exception as error:
                raise BadInput(
                    f"run_decompositions() failed on {self.name}: {first_line(error)}; try --dialect edge"
                ) from error
        edge = self.edge(exported)
        try:
            return at_write_back(edge)["forward"]
        except Exception as error:
            raise BadInput(
                f"ExecuTorch's pipeline fails on {self.name} before the write-backs: {first_line(error)}; "
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
    model: Model,
    rewritten: str | None,
    write_back_pass: Callable[[ExportedProgram], Any],
    dialect: str,
    timeout: float,
    keep_queries: Path | None,
) -> Report:
    """The report on a model and its rewritten program, or on what the pass makes of the model.

    Raises:
        BadInput: a file, the pass, or what it returned cannot be judged.
    """
    original = model.at_write_back(dialect)
    given = load_rewritten(rewritten) if rewritten is not None else None
    try:
        # What a pass prints must not stand among what a machine reads.
        with redirect_stdout(sys.stderr):
            if given is not None:
                return prove(original, given, timeout=timeout, keep_queries=keep_queries)
            return prove_pass(original, write_back_pass, timeout=timeout, keep_queries=keep_queries)
    except BadInput as error:
        raise BadInput(f"{rewritten or model.name}: {error}") from error


def proved_file(
    model: Model,
    file: str,
    method: str,
    data: Sequence[Path],
    imports: Sequence[str],
    timeout: float,
    keep_queries: Path | None,
) -> Report:
    """The report on a model and a `.pte` file; a refutation says what the runtime gives, and which stage is at fault
    where the shipped pipeline makes just this file.

    Args:
        model: the model.
        file: the `.pte` file.
        method: the method of the file that the model is.
        data: the external data files (`.ptd`) that belong to it.
        imports: modules that register custom kernels.
        timeout: seconds for each obligation.
        keep_queries: a folder for the queries, or None.

    Raises:
        BadInput: the model cannot be brought to the Edge dialect, or a file cannot be read.
    """
    pte = _bytes_of(file, "a .pte file that ExecuTorch wrote")
    exported = model.exported()
    edge = model.edge(exported)
    from copyproof.verify.program import external_data, prove_program
    from copyproof.verify.stages import stage_of

    held: dict[str, bytes] = {}
    for path in data:
        try:
            held.update(external_data(_bytes_of(str(path), "the .ptd file that was written with the .pte")))
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error
    original = edge.exported_program()
    try:
        report = prove_program(original, pte, method=method, data=held, timeout=timeout, keep_queries=keep_queries)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from error
    if report.verdict is not Verdict.REFUTED:
        return report
    stage = stage_of(edge, pte, method, timeout) if method == "forward" else ""
    return replace(report, stage=stage, witness=_seen(exported, pte, method, held, imports))


def proved_lowering(
    model: Model,
    write_back_pass: Callable[[ExportedProgram], Any],
    config: str | None,
    imports: Sequence[str],
    timeout: float,
) -> Report:
    """The report on the `.pte` file that a model becomes with a pass in ExecuTorch's pipeline; a refutation names the
    stage at fault, and says what the runtime gives.

    Args:
        model: the model.
        write_back_pass: stands where the shipped write-back pass does.
        config: `pkg.mod:name` of an ExecutorchBackendConfig, or of a function that makes one; None for the defaults.
        imports: modules that register custom kernels.
        timeout: seconds for each obligation.

    Raises:
        BadInput: the model, the pass or the configuration cannot be used.
    """
    exported = model.exported()
    edge = model.edge(exported)
    from executorch.exir import ExecutorchBackendConfig

    from copyproof.verify.stages import lowered_with, proofs_of

    chosen = ExecutorchBackendConfig(emit_mutable_buffer_names=True)
    if config is not None:
        found = named("--config", config)
        try:
            chosen = found() if callable(found) else found
        except Exception as error:
            raise BadInput(f"--config {config} raised {first_line(error)}; mend it") from error
        if not isinstance(chosen, ExecutorchBackendConfig):
            raise BadInput(f"--config {config} is a {type(chosen).__name__}, expected an ExecutorchBackendConfig")

    def called(program: ExportedProgram) -> Any:
        try:
            return write_back_pass(program)
        except Exception as error:
            raise BadInput(f"the pass raised {first_line(error)}; mend the pass") from error

    try:
        # What a pass prints must not stand among what a machine reads.
        with redirect_stdout(sys.stderr), standing_in(called):
            lowered = lowered_with(edge, chosen)
            report = proofs_of(edge, lowered, chosen, timeout)["forward"]
    except BadInput as error:
        raise BadInput(f"{model.name}: {error}") from error
    if report.verdict is not Verdict.REFUTED:
        return report
    return replace(report, witness=_seen(exported, lowered.buffer, "forward", {}, imports))


def _seen(
    exported: ExportedProgram, pte: bytes, method: str, data: dict[str, bytes], imports: Sequence[str]
) -> tuple[str, ...]:
    """What the runtime gives with a refuted file, against eager PyTorch."""
    if method != "forward" or data:
        return ("not run: the runtime is asked for the method forward of files without external data alone",)
    from copyproof.fuzz.sidebyside import seen

    return seen(exported, pte, imports)


def _bytes_of(name: str, what: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except FileNotFoundError as error:
        raise BadInput(f"there is no file {name!r}; give {what}") from error
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror}; give {what}") from error


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
    with path.open("rb") as file:
        if file.read(8)[4:] == b"ET12":
            raise BadInput(f"{name} is a .pte file; give its model first, and the file after it, named .pte")
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
