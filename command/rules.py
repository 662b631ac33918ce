"""The proof of the placement rule as text: the lemmas, and what each constraint is for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from copyproof.command.outcome import code_of
from copyproof.fuzz.ablation import Ablation, ablation
from copyproof.spec.lemmas import STATEMENTS
from copyproof.spec.lemmas.exclusion import first_lemma
from copyproof.spec.lemmas.placement import third_lemma
from copyproof.spec.lemmas.refinement import second_lemma
from copyproof.spec.obligations import Verdict
from copyproof.spec.rule import REFERENCE, Rule
from copyproof.verify.render import coloured
from copyproof.verify.rule_proof import RuleProof, counter_model, prove_rule


def write_queries(rule: Rule, folder: Path) -> None:
    """Writes each query of the three lemmas, with its readings as comments, into a folder."""
    for query in (*first_lemma(rule), *second_lemma(), *third_lemma(rule)):
        name = re.sub(r"\W+", "-", f"{query.lemma} {query.name}")
        (folder / f"{name}.smt2").write_text(query.text)


def show_rule(timeout: float, run: bool, folder: Path | None, as_json: bool) -> int:
    """Proves the reference rule and drops each of its constraints; prints both tables; gives the exit code."""
    proof = prove_rule(REFERENCE, timeout)
    if not as_json:
        _show_proof(proof)
    found = []
    for constraint in REFERENCE.constraints:
        if not as_json:
            click.echo(f"without {constraint.name} ...", err=True)
        found.append(_dropped((constraint.name,), timeout, run, folder))
    if as_json:
        click.echo(json.dumps({**_proof_as_json(proof), "constraints": found}, indent=2))
    else:
        _show_constraints(found)
    return code_of(proof.verdict)


def show_weakened(
    rule: Rule, names: tuple[str, ...], timeout: float, run: bool, folder: Path | None, as_json: bool
) -> int:
    """Shows the smallest graph that a weakened rule gets wrong; gives the exit code."""
    found = _dropped(names, timeout, run, folder)
    refuted = bool(found["graph"])
    if as_json:
        click.echo(json.dumps({"rule": rule.name, "verdict": "REFUTED" if refuted else "UNKNOWN", **found}, indent=2))
        return 1 if refuted else 3
    console = Console(soft_wrap=True, highlight=False)
    if not refuted:
        console.print(f"{coloured(Verdict.UNKNOWN)}  {escape(rule.name)}: no small graph was found that it gets wrong")
        return 3
    console.print(f"{coloured(Verdict.REFUTED)}  the rule {escape(rule.name)}, on this graph:")
    for line in found["graph"]:
        console.print(f"  [dim]|[/dim] {escape(line)}")
    if found["printed"]:
        console.print(f"run ({escape(found['where'])}):")
        for line in found["printed"]:
            console.print(f"  {escape(line)}")
    if found["script"]:
        console.print(f"script: {escape(found['script'])}")
    return 1


def _dropped(names: tuple[str, ...], timeout: float, run: bool, folder: Path | None) -> dict[str, Any]:
    """What is known of the reference rule without some constraints, as plain data."""
    weakened = REFERENCE.without(*names)
    model = counter_model(weakened, timeout)
    known: dict[str, Any] = {"constraint": ", ".join(names), "graph": [], "printed": [], "where": "", "script": ""}
    if model is None:
        return known
    known.update(graph=model.as_lines(), steps=len(model.steps), targets=len(model.targets))
    if run:
        seen = ablation(names, model)
        known.update(printed=seen.printed.splitlines()[:3], where=seen.where, script=_script(seen, names, folder))
    return known


def _script(seen: Ablation, names: tuple[str, ...], folder: Path | None) -> str:
    if folder is None or seen.seen is None:
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"without_{'_'.join(names).replace('-', '_')}.py"
    path.write_text(seen.seen.text)
    return str(path)


def _show_proof(proof: RuleProof) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{coloured(proof.verdict)}  the placement rule, for graphs of any size")
    for name, statement in STATEMENTS.items():
        console.print(f"\n{name} {escape(statement)}")
        table = Table(box=None, pad_edge=False)
        for column in ("query", "verdict", "Z3", "cvc5"):
            table.add_column(column, justify="right" if column in ("Z3", "cvc5") else "left")
        for query in proof.queries:
            if query.query.lemma == name:
                seconds = [f"{d.status} {d.seconds:.2f} s" for d in query.decisions]
                table.add_row(query.query.name, coloured(query.verdict), *seconds)
        console.print(table)
    agree = sum(query.premises.status == "sat" for query in proof.queries)
    decidable = sum(query.undecidable is None for query in proof.queries)
    console.print(
        f"\nnot vacuous: the premises of {agree} of {len(proof.queries)} queries have a model, and one has a "
        f"target, a read and a clone of every kind ({proof.plenty.status}); {decidable} are in the decidable fragment"
    )


def _proof_as_json(proof: RuleProof) -> dict[str, Any]:
    return {
        "rule": proof.rule.name,
        "verdict": proof.verdict.value,
        "vacuous": proof.plenty.status != "sat",
        "queries": [
            {
                "lemma": query.query.lemma,
                "name": query.query.name,
                "verdict": query.verdict.value,
                "decidable": query.undecidable is None,
                **{d.solver: {"status": d.status, "seconds": round(d.seconds, 3)} for d in query.decisions},
            }
            for query in proof.queries
        ],
    }


def _show_constraints(found: list[dict[str, Any]]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print("\nwhat each constraint is for: the smallest graph that the rest of the rule gets wrong")
    for known in found:
        where = f", seen in the {known['where']}" if known["where"] else ""
        console.print(f"\n[bold]{known['constraint']}[/]: {known.get('steps', 0)} steps{escape(where)}")
        for line in known["graph"]:
            console.print(f"  [dim]|[/dim] {escape(line)}")
        for line in known["printed"][:1]:
            console.print(f"  {escape(line)}")
