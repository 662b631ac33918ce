"""`pytest verify`: proves a write-back pass on every program of the corpus that reaches it.

The reference pass, the default, must be proved in safety and quality; a pass given by `--pass` in safety. With
`--through executorch` the `.pte` file that comes out must be proved; what the pipeline itself gets wrong, whatever the
pass does, is an expected failure that names the stage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from copyproof.spec.obligations import Verdict
from copyproof.spec.pipeline import REFERENCE_PASS, at_write_back
from copyproof.verify import BadInput, prove_lowering, prove_pass
from copyproof.verify.corpus import CASES, MODELS, Example
from copyproof.verify.corpus.cases import DOES_NOT_REACH, NOT_IN_RUNTIME, PIPELINE_WRONG
from copyproof.verify.corpus.example import backend_config, export, to_edge
from copyproof.verify.render import as_text

_REACHING = [
    pytest.param(example, id=example.name, marks=[pytest.mark.slow] if example.slow else [])
    for example in MODELS + CASES
    if example.name not in DOES_NOT_REACH
]


@pytest.mark.parametrize("example", _REACHING)
def test_pass_is_proved_on(
    example: Example,
    pass_name: str,
    write_back_pass: Callable[[Any], Any],
    request: pytest.FixtureRequest,
) -> None:
    edge = to_edge(export(example), example)
    if request.config.getoption("through"):
        _require_file_proved(example, edge, pass_name, write_back_pass)
        return
    for method, program in at_write_back(edge, backend_config(example)).items():
        report = prove_pass(program, write_back_pass)
        strict = pass_name == REFERENCE_PASS
        verdict = report.strict_verdict if strict else report.verdict
        if verdict is not Verdict.PROVED:
            pytest.fail(as_text(report, f"{pass_name} on {example.name}.{method}", strict), pytrace=False)


def _require_file_proved(
    example: Example,
    edge: Any,
    pass_name: str,
    write_back_pass: Callable[[Any], Any],
) -> None:
    """Fails where the file that the pass leads to is not proved, unless the pipeline is known to be at fault."""
    try:
        reports = prove_lowering(edge, write_back_pass, backend_config(example))
    except BadInput as error:
        if example.name in NOT_IN_RUNTIME:
            pytest.xfail(NOT_IN_RUNTIME[example.name])
        pytest.fail(f"{pass_name} on {example.name}: {error}", pytrace=False)
    for method, report in reports.items():
        stage, reason = PIPELINE_WRONG.get(example.name, (None, ""))
        if report.verdict is Verdict.REFUTED and stage is not None and report.stage == stage.value:
            pytest.xfail(f"{stage.value}: {reason}")
        if report.verdict is not Verdict.PROVED:
            pytest.fail(as_text(report, f"{pass_name} on {example.name}.{method}, as a file"), pytrace=False)
