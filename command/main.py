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

REFERENCE_PASS = "copyproof.impl:reference_pass"
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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="copyproof")
def main() -> None:
    """Prove that compiler passes over stateful PyTorch graphs are right."""


@main.command()
@click.argument("files", nargs=-1, required=True, metavar="MODEL.pt2 [REWRITTEN.pt2]")
@click.option(
    "--pass",
    "pass_name",
    metavar="PKG.MOD:FN",
    help="The write-back pass to prove, ExportedProgram -> (GraphModule, ExportGraphSignature). "
    f"[default: {REFERENCE_PASS}]",
)
@click.option("--each", is_flag=True, help="Take two files as two models, not as original and rewritten program.")
@_dialect
@_preserve
@_imports
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds for each obligation; UNKNOWN after that.",
)
@click.option("--strict", is_flag=True, help="Let EARLIEST and LIFETIME count for verdict and exit code too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--emit-smt2", type=Path, metavar="DIR", help="Keep each query as an SMT-LIB 2 file in this folder.")
def prove(
    files: tuple[str, ...],
    pass_name: str | None,
    each: bool,
    dialect: str,
    preserve: tuple[str, ...],
    imports: tuple[str, ...],
    timeout: float,
    strict: bool,
    as_json: bool,
    emit_smt2: Path | None,
) -> None:
    """Prove a write-back pass on each MODEL.pt2, or that REWRITTEN.pt2 is right for MODEL.pt2.

    With two files and neither --pass nor --each, the second is the rewritten program of the first.

    Exit code: 0 proved, 1 refuted, 2 bad usage or input, 3 unknown.
    """
    from copyproof.command import programs
    from copyproof.spec.obligations import Verdict
    from copyproof.spec.program import BadInput
    from copyproof.verify.render import show

    pair = len(files) == 2 and pass_name is None and not each
    code_of = {Verdict.PROVED: 0, Verdict.REFUTED: 1, Verdict.UNKNOWN: 3}
    codes: list[int] = []
    results: list[dict[str, Any]] = []
    try:
        programs.quiet()
        programs.import_modules(imports)
        write_back_pass = programs.named_pass(pass_name or REFERENCE_PASS)
        if emit_smt2 is not None:
            programs.require_folder(emit_smt2)
    except BadInput as error:
        _fail(str(error))
    for name in files[:1] if pair else files:
        try:
            folder = emit_smt2
            if emit_smt2 is not None and len(files) > 1 and not pair:
                folder = emit_smt2 / Path(name).stem
                folder.mkdir(exist_ok=True)
            report = programs.proved(
                name, files[1] if pair else None, write_back_pass, dialect, preserve, timeout, folder
            )
        except BadInput as error:
            click.echo(f"copyproof: {name}: {error}", err=True)
            codes.append(2)
            results.append({"model": name, "error": str(error)})
            continue
        verdict = report.strict_verdict if strict else report.verdict
        codes.append(code_of[verdict])
        results.append({"model": name, **report.as_json(), "verdict": verdict.value})
        if not as_json:
            subject = f"{files[1]} against {name}" if pair else f"{pass_name or 'the reference pass'} on {name}"
            show(report, subject, strict)
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
    """Place the write-backs of MODEL.pt2 early with the reference pass, and write the rewritten program.

    Prints the bytes live before (write-backs at the end) and after. Check the result with
    `copyproof prove MODEL.pt2 OUT.pt2`.
    """
    from copyproof.command import programs, show
    from copyproof.spec.program import BadInput

    try:
        programs.quiet()
        programs.import_modules(imports)
        original = programs.load_model(model, dialect, preserve)
        placed = programs.placed(original)
        programs.save(placed.rewritten, output, dialect)
    except BadInput as error:
        _fail(f"{model}: {error}")
    show.placement(placed, model, output)


def _fail(message: str) -> None:
    click.echo(f"copyproof: {message}", err=True)
    sys.exit(2)
