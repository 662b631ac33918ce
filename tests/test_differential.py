"""The corpus in the real runtime: early placement against end placement done right, bit for bit, and against eager; and
the verdicts on other passes against what the runtime does with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from executorch.exir.passes.insert_write_back_for_buffers_pass import insert_write_back_for_buffers_pass

from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import Call, lower, mutated_inputs, run_eager
from copyproof.fuzz.runtime import run_program
from copyproof.impl import end_placement, reference_pass
from copyproof.spec.obligations import Obligation, Verdict
from copyproof.verify import prove_pass
from copyproof.verify.corpus import CASES, MODELS, Example, find
from copyproof.verify.corpus.cases import DOES_NOT_REACH, NOT_IN_RUNTIME, PIPELINE_WRONG, SHIPPED_WRONG
from copyproof.verify.corpus.example import backend_config, calls_of, export

from .known_wrong import after_last_schema_reader
from .lowering import HALF_PRECISION, close, edge_of, program_of

LARGE = {"llama_8_layers", "llama_dynamic", "gemma4_text", "gemma4_31b", "quantised_cache", "qwen3_5", "attention_sink"}
"""Models that take more than a few seconds to lower twice: at night."""

REACHING = [e for e in CASES + MODELS if e.name not in DOES_NOT_REACH]
RUNNING = [
    pytest.param(e, id=e.name, marks=[pytest.mark.slow] if e.slow or e.name in LARGE else [])
    for e in REACHING
    if e.name not in NOT_IN_RUNTIME
]
SMALL = [e for e in REACHING if e in CASES or e.name == "delay_line"]


def in_runtime(example: Example, write_back_pass: Callable[..., Any]) -> list[Call]:
    """The consecutive calls of `example`, lowered with a pass, in ExecuTorch's runtime."""
    pte = lower(edge_of(example), write_back_pass, backend_config(example))
    mutated = mutated_inputs(program_of(example).graph_signature)
    return run_program(pte, calls_of(example), example.imports, mutated)


def in_eager(example: Example) -> list[Call]:
    """The same calls in eager, from the same state."""
    return run_eager(export(example).module(), calls_of(example))


@pytest.mark.parametrize("example", RUNNING)
def test_reference_pass_runs_as_end_placement_bit_for_bit_and_as_eager(example: Example) -> None:
    early, late = in_runtime(example, reference_pass), in_runtime(example, end_placement())
    assert differences(late, early, exact=True) == []
    eager = in_eager(example)
    if example.name in PIPELINE_WRONG:
        assert differences(eager, early, exact=False), (
            "the pipeline is right now: take the example out of PIPELINE_WRONG"
        )
    elif example.name in HALF_PRECISION:
        assert close(eager, early, HALF_PRECISION[example.name])
    else:
        assert differences(eager, early, exact=False) == []


@pytest.mark.parametrize("example", SMALL, ids=lambda e: e.name)
def test_shipped_pass_is_refuted_just_where_it_is_wrong(example: Example) -> None:
    report = prove_pass(program_of(example), insert_write_back_for_buffers_pass)
    expected = Verdict.REFUTED if example.name in SHIPPED_WRONG else Verdict.PROVED
    assert report.verdict is expected, report
    if expected is Verdict.REFUTED:
        reasons = [r for f in report.findings for r in f.reasons]
        assert any("lost write" in r or "after copy_" in r for r in reasons), reasons
        assert any("but is" in line for line in report.witness), report.witness


SCHEMA_HAZARDS = ["view_chain_matmul", "reinplace_view_of_old", "value_view_other_buffer_rev"]


@pytest.mark.parametrize("name", SCHEMA_HAZARDS)
def test_pass_that_trusts_schemas_is_refuted_and_the_runtime_shows_wrong_numbers(name: str) -> None:
    example = find(name)
    report = prove_pass(program_of(example), after_last_schema_reader)
    assert report[Obligation.ORDER].verdict is Verdict.REFUTED, report
    assert differences(in_eager(example), in_runtime(example, after_last_schema_reader), exact=False)


def test_pass_that_trusts_schemas_is_proved_and_runs_right_where_no_view_is_read_late() -> None:
    example = find("scale_then_update")
    assert prove_pass(program_of(example), after_last_schema_reader).verdict is Verdict.PROVED
    assert differences(in_eager(example), in_runtime(example, after_last_schema_reader), exact=False) == []
