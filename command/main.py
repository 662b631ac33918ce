"""`copyproof prove` and `copyproof place`.

Exit codes: 0 proved, 1 refuted, 2 bad usage or input, 3 unknown. Several models in one call give the worst: a
refutation before bad input, bad input before unknown.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from copyproof.command import options
from copyproof.command.check import check_pass, enumerate_programs, rule
from copyproof.command.fuzz import fuzz
from copyproof.command.outcome import bug, code_of, fail, failing
from copyproof.spec.pipeline import REFERENCE_PASS

_WORST_FIRST = (1, 2, 3, 0)

_imports = click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="MODULE",
    help="Import this module first, so that its custom operators are known. May be repeated.",
)
_dialect = click.option(
    "--dialect",
    type=click.Choice(["edge", "aten"]),
    default="edge",
    show_default=True,
    help="edge: bring the model to the point of ExecuTorch's pipeline where write-backs are inserted; "
    "aten: keep it in functional core ATen.",
)
_preserve = click.option(
    "--preserve",
    multiple=True,
    metavar="OPERATOR",
    help="An operator that to_edge must not decompose, as aten.linear.default. May be repeated.",
)


_partitioner = click.option(
    "--partitioner",
    metavar="PKG.MOD:CLASS",
    help="Delegate what this partitioner takes, as "
    "executorch.backends.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="copyproof")
def main() -> None:
    """Prove that compiler passes over stateful PyTorch graphs are right.

    Run `copyproof COMMAND --help` for options and examples.
    """


@main.command()
@click.argument("files", nargs=-1, required=True, metavar="MODEL.pt2... | MODEL.pt2 [REWRITTEN.pt2|PROGRAM.pte]")
@click.option(
    "--pass",
    "pass_name",
    metavar="PKG.MOD:FN",
    help="The write-back pass to prove, ExportedProgram -> (GraphModule, ExportGraphSignature); or `shipped`. "
    f"[default: {REFERENCE_PASS}]",
)
@click.option("--each", is_flag=True, help="Take two files as two models, not as original and rewritten program.")
@_dialect
@_preserve
@_partitioner
@_imports
@click.option(
    "--through",
    type=click.Choice(["executorch"]),
    help="Lower the model with the pass through the whole pipeline, and prove the .pte file that comes out.",
)
@click.option(
    "--config",
    metavar="PKG.MOD:NAME",
    help="With --through: the ExecutorchBackendConfig to lower with, or a function that makes one.",
)
@click.option("--method", default="forward", show_default=True, help="The method of PROGRAM.pte that the model is.")
@click.option(
    "--data",
    type=Path,
    multiple=True,
    metavar="FILE.ptd",
    help="An external data file that belongs to PROGRAM.pte. May be repeated.",
)
@options.timeout("obligation; UNKNOWN after that")
@click.option("--strict", is_flag=True, help="Let EARLIEST and LIFETIME count for verdict and exit code too.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help='Print JSON instead of a table: one object for a model, {"models": [...]} for several.',
)
@click.option("--emit-smt2", type=Path, metavar="DIR", help="Keep each query as an SMT-LIB 2 file in this folder.")
def prove(
    files: tuple[str, ...],
    pass_name: str | None,
    each: bool,
    dialect: str,
    preserve: tuple[str, ...],
    partitioner: str | None,
    imports: tuple[str, ...],
    through: str | None,
    config: str | None,
    method: str,
    data: tuple[Path, ...],
    timeout: float,
    strict: bool,
    as_json: bool,
    emit_smt2: Path | None,
) -> None:
    """Prove that a pass is right, or a rewritten program.

    Proves a write-back pass (the reference pass if --pass is not given) on each model; but two files without --pass
    and --each are a pair: it proves that the second, a rewritten program or a .pte file, is right for the first.
    With --through executorch it proves the .pte file that the model becomes with the pass, and a refutation names the
    stage of the pipeline that is at fault.

    \b
        copyproof prove model.pt2
        copyproof prove model.pt2 --pass my_passes.early:my_pass
        copyproof prove model.pt2 rewritten.pt2
        copyproof prove model.pt2 program.pte
        copyproof prove model.pt2 --pass my_passes.early:my_pass --through executorch

    Exit code: 0 proved, 1 refuted, 2 bad usage or input, 3 unknown.
    """
    from copyproof.command import programs
    from copyproof.spec.errors import BadInput
    from copyproof.verify.passes import named_pass
    from copyproof.verify.render import show

    pair = len(files) == 2 and pass_name is None and not each and through is None
    codes: list[int] = []
    results: list[dict[str, Any]] = []
    try:
        programs.quiet()
        programs.import_modules(imports)
        write_back_pass = named_pass(REFERENCE_PASS if pass_name is None else pass_name)
        if emit_smt2 is not None:
            programs.require_folder(emit_smt2)
        if through is None and config is not None:
            raise BadInput("--config is about lowering; add --through executorch, or drop it")
        if through is not None and (dialect != "edge" or emit_smt2 is not None):
            raise BadInput("--through executorch takes neither --dialect aten nor --emit-smt2; drop them")
        if not pair and len(files) > 1 and any(name.endswith(".pte") for name in files):
            raise BadInput("a .pte file is proved against its model alone, without --pass, --through and --each")
        if (method != "forward" or data) and not (pair and files[1].endswith(".pte")):
            raise BadInput("--method and --data are about a .pte file; give it after the model")
    except BadInput as error:
        fail(str(error), as_json)
    for name in files[:1] if pair else files:
        try:
            folder = emit_smt2
            if emit_smt2 is not None and len(files) > 1 and not pair:
                folder = emit_smt2 / Path(name).stem
                folder.mkdir(exist_ok=True)
            model = programs.Model(name, preserve, partitioner)
            if pair and files[1].endswith(".pte"):
                report = programs.proved_file(model, files[1], method, data, imports, timeout, folder)
            elif through is not None:
                report = programs.proved_lowering(model, write_back_pass, config, imports, timeout)
            else:
                given = files[1] if pair else None
                report = programs.proved(model, given, write_back_pass, dialect, timeout, folder)
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception as error:  # nothing but a verdict may look like one
            message = str(error) if isinstance(error, BadInput) else bug(name, error)
            click.echo(f"copyproof: {message}", err=True)
            codes.append(2)
            results.append({"model": name, "error": message})
            continue
        verdict = report.strict_verdict if strict else report.verdict
        codes.append(code_of(verdict))
        subject = {"rewritten": files[1]} if pair else {"pass": pass_name or REFERENCE_PASS}
        results.append({"model": name, **subject, **report.as_json(), "verdict": verdict.value})
        if not as_json:
            what = f"{files[1]} against {name}" if pair else f"{pass_name or 'the reference pass'} on {name}"
            what += ", through executorch" if through is not None else ""
            show(report, what, strict)
    code = next(c for c in _WORST_FIRST if c in codes)
    if as_json:
        click.echo(json.dumps(results[0] if len(results) == 1 else {"models": results}, indent=2))
    sys.exit(code)


@main.command()
@click.argument("model", metavar="MODEL.pt2")
@click.option("-o", "--output", required=True, metavar="OUT.pt2", help="Where to write the rewritten program.")
@_dialect
@_preserve
@_imports
def place(model: str, output: str, dialect: str, preserve: tuple[str, ...], imports: tuple[str, ...]) -> None:
    """Place a model's write-backs early, and save the result.

    Uses the reference pass. An OUT.pt2 that is there already is replaced. Prints the bytes of intermediate tensors that
    are live (mutable buffers and inputs not counted), with write-backs at the end and early, and how they go over the
    program.

    \b
        copyproof place model.pt2 -o placed.pt2
        copyproof prove model.pt2 placed.pt2
    """
    from copyproof.command import programs, show

    with failing(model):
        programs.quiet()
        programs.import_modules(imports)
        programs.require_output(output, model)
        original = programs.Model(model, preserve).at_write_back(dialect)
        placed = programs.placed(original)
        programs.save(placed.rewritten, output, dialect)
    show.placement(placed, model, output)


main.add_command(enumerate_programs)
main.add_command(check_pass)
main.add_command(rule)
main.add_command(fuzz)
