"""`pytest fuzz`: a small campaign, always the same one, with the pass that `--pass` names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from copyproof.fuzz.campaign.known import OWN, known_in, name_of
from copyproof.fuzz.campaign.levels import GRAPHS, MODULES
from copyproof.fuzz.campaign.minimise import minimise
from copyproof.fuzz.campaign.record import Finding
from copyproof.fuzz.campaign.unit import Unit, run_unit
from copyproof.fuzz.campaign.written import explained, write_finding


@pytest.mark.parametrize(
    ("level", "pipeline", "programs"),
    [(MODULES, "shipped", 60), (MODULES, "reinplace", 30), (GRAPHS, "", 3000)],
    ids=["modules", "modules, reinplaced", "graphs"],
)
def test_pass_fails_on_no_program_that_is_not_known(
    level: str, pipeline: str, programs: int, pass_name: str, write_back_pass: Callable[[Any], Any], tmp_path: Path
) -> None:
    outcome = run_unit(Unit(level, 1, programs, pass_name, pipeline))
    # Hypothesis leaves out what it drew before.
    assert outcome.programs >= programs // 2
    assert sum(outcome.rejected.values()) <= outcome.programs * 0.05, outcome.rejected
    known = known_in(OWN)
    told = []
    for signature, sighting in outcome.found.items():
        if name_of(known, signature, pass_name):
            continue
        small = minimise(signature, level, sighting.program, sighting.failure, pass_name, pipeline)
        program = small.program or sighting.program
        finding = Finding(
            signature,
            small.failure.slug,
            level,
            pipeline,
            sighting.count,
            program,
            small.failure,
            program,
            small.printed,
            "",
        )
        folder = write_finding(tmp_path, finding, small.script, pass_name)
        told += [*explained(finding, pass_name), f"written to {folder}", ""]
    if told:
        pytest.fail("\n".join(told), pytrace=False)
