"""The reference pass on functional ATen, and on Edge programs that another pass has made in place."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import lower, run_eager
from copyproof.fuzz.runtime import run_program
from copyproof.impl import reference_pass
from copyproof.spec.obligations import Verdict
from copyproof.spec.pipeline import at_write_back
from copyproof.verify import prove_pass
from copyproof.verify.corpus import CASES, Example, find
from copyproof.verify.corpus.cases import DOES_NOT_REACH
from copyproof.verify.corpus.example import backend_config, calls_of, export

from .lowering import edge_of

NOT_IN_ATEN = {
    "lineage_wrong_buffer": "one node is the new value of two targets",
    "lineage_wrong_buffer2": "one node is the new value of two targets",
    "two_buffers_same_node": "one node is the new value of two targets",
    "overlap_unfold_abs": "what is written overlaps itself",
    "diagonal_as_strided": "as_strided of a view cannot be made functional",
    "tied_buffers": "two buffers that are one tensor cannot be made functional",
    "overlapping_buffers": "two buffers that overlap cannot be made functional",
    "cond_mutates_buffer": "a branch writes a buffer",
}
"""Cases that run_decompositions() refuses."""


@pytest.mark.parametrize("example", CASES, ids=lambda e: e.name)
def test_reference_pass_is_proved_on_functional_aten(example: Example) -> None:
    exported = export(example)
    if example.name in NOT_IN_ATEN:
        with pytest.raises(Exception):  # noqa: B017
            exported.run_decompositions()
        return
    report = prove_pass(exported.run_decompositions(), reference_pass)
    assert report.strict_verdict is Verdict.PROVED, report


IN_PLACE = [e for e in CASES if e.name not in DOES_NOT_REACH]


@pytest.mark.parametrize("example", IN_PLACE, ids=lambda e: e.name)
def test_reference_pass_is_proved_on_reinplaced_programs(example: Example) -> None:
    config = replace(backend_config(example), run_reinplace_pass=True)
    (program,) = at_write_back(edge_of(example), config).values()
    report = prove_pass(program, reference_pass)
    assert report.strict_verdict is Verdict.PROVED, report


def test_reference_pass_keeps_a_view_that_reinplacing_would_overwrite() -> None:
    example = find("reinplace_view_of_old")
    config = replace(backend_config(example), run_reinplace_pass=True)
    expected = run_eager(export(example).module(), calls_of(example))
    shipped = run_program(lower(edge_of(example), None, config), calls_of(example))
    ours = run_program(lower(edge_of(example), reference_pass, config), calls_of(example))
    assert differences(expected, shipped) != []
    assert differences(expected, ours) == []


def test_auto_functionalized_custom_operator_is_proved_before_and_after_it_is_undone() -> None:
    example = find("update_cache_custom_op")
    functional = export(example).run_decompositions()
    assert any("auto_functionalized" in str(node.target) for node in functional.graph.nodes)
    assert prove_pass(functional, reference_pass).strict_verdict is Verdict.PROVED
    (undone,) = at_write_back(edge_of(example), backend_config(example)).values()
    assert any(node.target is torch.ops.llama.update_cache.default for node in undone.graph.nodes)
    assert prove_pass(undone, reference_pass).strict_verdict is Verdict.PROVED
