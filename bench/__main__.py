"""`make bench`: planned activation bytes, and the time of each stage, model by model, side by side in one run.

Activation bytes are the planned arena less the mutable buffers. Times are ratios worth comparing within one run only.
Give names of corpus models to measure just those.
"""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.passes.insert_write_back_for_buffers_pass import insert_write_back_for_buffers_pass
from rich.console import Console
from rich.table import Table
from torch.export import ExportedProgram

from copyproof.fuzz.execution import lower
from copyproof.impl import reference_pass
from copyproof.spec.pipeline import at_write_back, copy_of
from copyproof.verify import prove
from copyproof.verify.corpus import MODELS, Example, find
from copyproof.verify.corpus.example import backend_config, export, to_edge
from copyproof.verify.program import prove_program

_COLUMNS = (
    "model",
    "nodes",
    "targets",
    "shipped B",
    "ours B",
    "saved",
    "export s",
    "to_edge s",
    "shipped pass ms",
    "our pass ms",
    "proof s",
    "proof / to_edge",
    "verdict",
    "to_executorch s",
    ".pte proof s",
    ".pte proof / to_executorch",
    ".pte verdict",
)


_REPEATS = 3
"""Each pass is run this often, in turns; the least time counts."""


def main(names: list[str]) -> None:
    """Measures the named models, or all of them, and prints the table."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    table = Table(*_COLUMNS, box=None, pad_edge=False)
    console = Console(width=200)
    for example in [find(name) for name in names] or sorted(MODELS, key=lambda e: e.slow):
        row = _measured(example)
        console.print(" | ".join(row), style="dim")
        table.add_row(*row)
    console.print(table)


def _measured(example: Example) -> list[str]:
    exported, export_seconds = _timed(lambda: export(example))
    edge, edge_seconds = _timed(lambda: to_edge(exported, example))
    (program,) = at_write_back(edge, backend_config(example)).values()
    passes: dict[Any, list[float]] = {insert_write_back_for_buffers_pass: [], reference_pass: []}
    for _ in range(_REPEATS):
        for write_back_pass, seconds in passes.items():
            copy = copy_of(program)
            gc.collect()
            seconds.append(_timed(lambda call=write_back_pass, copy=copy: call(copy))[1])
    shipped_seconds, our_seconds = (min(seconds) for seconds in passes.values())
    rewritten = reference_pass(copy_of(program))
    report, proof_seconds = _timed(lambda: prove(program, rewritten))
    shipped_pte = lower(edge, insert_write_back_for_buffers_pass, backend_config(example))
    pte, lowering_seconds = _timed(lambda: lower(edge, reference_pass, backend_config(example)))
    file_report, file_seconds = _timed(lambda: prove_program(program, pte))
    shipped, ours = _activation_bytes(shipped_pte, program), _activation_bytes(pte, program)
    signature = program.graph_signature
    return [
        example.name,
        f"{len(program.graph.nodes)}",
        f"{len(signature.buffers_to_mutate) + len(signature.user_inputs_to_mutate)}",
        f"{shipped:,}",
        f"{ours:,}",
        f"{1 - ours / shipped:.1%}" if shipped else "-",
        f"{export_seconds:.1f}",
        f"{edge_seconds:.1f}",
        f"{shipped_seconds * 1000:.1f}",
        f"{our_seconds * 1000:.1f}",
        f"{proof_seconds:.2f}",
        f"{proof_seconds / edge_seconds:.1%}",
        report.strict_verdict.value,
        f"{lowering_seconds:.1f}",
        f"{file_seconds:.2f}",
        f"{file_seconds / lowering_seconds:.1%}",
        file_report.verdict.value,
    ]


def _activation_bytes(pte: bytes, program: ExportedProgram) -> int:
    (plan,) = deserialize_pte_binary(pte).program.execution_plan
    buffers = program.graph_signature.inputs_to_buffers
    mutated = set(program.graph_signature.buffers_to_mutate.values())
    state = 0
    for node in program.graph.nodes:
        if node.op == "placeholder" and buffers.get(node.name) in mutated:
            value: torch.Tensor = node.meta["val"]
            state += value.numel() * value.element_size()
    return sum(plan.non_const_buffer_sizes) - state


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = perf_counter()
    result = call()
    return result, perf_counter() - started


if __name__ == "__main__":
    main(sys.argv[1:])
