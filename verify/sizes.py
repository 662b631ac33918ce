"""Whether the sizes that a program leaves open are still open.

All copies of a program share the ShapeEnv that says what is known of their sizes. Whoever asks a size for its number
(`int(x.shape[0])`), or runs an operator that must know how it compares, adds a guard there, and from then on all of the
copies look as if they were made for the sizes that meet it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from sympy import sympify
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy


def narrowed(program: ExportedProgram) -> str:
    """What was assumed of a program's sizes after its export, though its range constraints do not say so; empty where
    that is nothing."""
    environment = _environment(program)
    if environment is None:
        return ""
    ranges = {symbol: _from_two(allowed) for symbol, allowed in program.range_constraints.items()}
    # A size that the export found to be another one is no longer among the program's.
    others = {symbol: size for symbol, size in environment.replacements.items() if symbol not in ranges}
    for guard in environment.guards:
        expression = sympify(guard.expr).subs(others)
        held = bound_sympy(expression, ranges)
        if not (held.is_singleton() and held.lower):
            return _told(str(expression), {s: ranges[s] for s in expression.free_symbols if s in ranges})
    for symbol, allowed in ranges.items():
        now = environment.replacements.get(symbol, symbol)
        left = environment.var_to_range.get(symbol, allowed)
        if now != symbol:
            return _told(f"{symbol} = {now}", {symbol: allowed})
        if left.lower > allowed.lower or left.upper < allowed.upper:
            return _told(f"{left.lower} <= {symbol} <= {left.upper}", {symbol: allowed})
    return ""


def from_two(program: ExportedProgram) -> list[str]:
    """What is assumed where a program allows sizes of 0 or 1: nothing, or one sentence."""
    symbols = [str(s) for s, allowed in program.range_constraints.items() if _from_two(allowed) != allowed]
    if not symbols:
        return []
    return [f"sizes that may be 0 or 1 ({', '.join(symbols)}) are at least 2, as torch.export itself takes them to be"]


def _from_two(allowed: ValueRanges[Any]) -> ValueRanges[Any]:
    """A range without 0 and 1, where other sizes are allowed: torch.export takes no size that is open for one of them
    (`ShapeEnv`'s specialize_zero_one)."""
    return allowed & ValueRanges(2, int_oo) if allowed.upper >= 2 else allowed


def _told(assumption: str, ranges: Mapping[Any, ValueRanges[Any]]) -> str:
    allowed = ", ".join(f"{symbol} from {r.lower} to {r.upper}" for symbol, r in ranges.items())
    return (
        f"{assumption} was assumed after the export, which allows {allowed}: a pass asked a size for its number, or an "
        "operator that it inserted fits some sizes only; keep sizes as symbols (no int(), bool() or range() of one)"
    )


def _environment(program: ExportedProgram) -> ShapeEnv | None:
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return value.node.shape_env
            mode = getattr(value, "fake_mode", None)
            if mode is not None and mode.shape_env is not None:
                return mode.shape_env
    return None
