"""What a campaign writes for a finding: a folder with the program, a script, a test and an explanation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from copyproof.fuzz.campaign.failure import Fault
from copyproof.fuzz.campaign.levels import program_of
from copyproof.fuzz.campaign.record import Finding
from copyproof.fuzz.programs.stateful import Stateful
from copyproof.spec.errors import BadInput


def write_finding(folder: Path, finding: Finding, script: str, pass_name: str, made: Sequence[str] = ()) -> Path:
    """Writes the folder of a finding, and gives its path.

    Args:
        folder: the campaign's folder.
        finding: the finding, reduced.
        script: its standalone script, or empty.
        pass_name: the pass that the campaign is about.
        made: what it made of the program, line by line.
    """
    into = folder / "failures" / finding.name
    into.mkdir(parents=True, exist_ok=True)
    about = {
        "signature": finding.signature,
        "level": finding.level,
        "pass": pass_name,
        "pipeline": finding.pipeline,
        "program": json.loads(finding.reduced or finding.program),
        "failure": finding.failure.as_json(),
    }
    (into / "program.json").write_text(json.dumps(about, indent=1) + "\n")
    (into / "explanation.txt").write_text("\n".join(explained(finding, pass_name, made)) + "\n")
    if script:
        (into / "repro.py").write_text(script)
        (into / "test_repro.py").write_text(_TEST)
    return into


def explained(finding: Finding, pass_name: str, made: Sequence[str] = ()) -> list[str]:
    """A finding in words; `made` is what the pass made of the program, line by line."""
    failure = finding.failure
    rewritten = ["", "what the pass made of it:", *(f"  {line}" for line in made)] if made else []
    program = program_of(json.loads(finding.reduced or finding.program))
    text = program.text().rstrip().split("\n") if isinstance(program, Stateful) else program.as_lines()
    how = "cannot be compared" if failure.raised else _DIFFER
    lines = [
        f"{failure.left} and {failure.right} {how}, by the fault of: {Fault[failure.fault].value}",
    ]
    if how == _DIFFER:
        lines.append(f"broken: {failure.obligation or 'no obligation that the prover refutes'}")
    if failure.shape:
        lines.append(f"how: {failure.shape}")
    lines.append(f"pass: {pass_name}" + (f"; pipeline: {finding.pipeline}" if finding.pipeline else ""))
    programs = "program" if finding.count == 1 else "programs; this is what the smallest was reduced to"
    lines.append(f"seen on {finding.count} {programs}")
    if finding.known:
        lines.append(f"known as: {finding.known}")
    lines += ["", *(f"  {line}" for line in failure.lines), "", *text, *rewritten, ""]
    lines += (
        [
            "its script, with numbers of its own and all that is needed to see them returned, printed:",
            *(f"  {line}" for line in finding.seen.split("\n")),
        ]
        if finding.seen
        else ["no script shows it in the runtime"]
    )
    return lines


def read_finding(folder: Path) -> dict[str, Any]:
    """What `write_finding` wrote of the program.

    Raises:
        BadInput: the folder holds no finding.
    """
    path = folder / "program.json"
    try:
        about = json.loads(path.read_text())
        if not {"signature", "level", "pass", "pipeline", "program", "failure"} <= set(about):
            raise ValueError("a field is missing")
        return dict(about)
    except (OSError, ValueError) as error:
        what = (error.strerror or "").lower() if isinstance(error, OSError) else str(error)
        raise BadInput(f"{folder} holds no failure ({what}); name a folder under CAMPAIGN/failures") from error


_DIFFER = "differ"
_TEST = '''"""Fails as long as the failure is there."""

import subprocess
import sys
from pathlib import Path


def test_the_program_gives_the_expected_numbers():
    run = subprocess.run([sys.executable, Path(__file__).with_name("repro.py")], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
'''
