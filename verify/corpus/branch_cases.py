"""Hazard cases about operations with insides of their own: branches, loops, mutable custom operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, zeros

from .case import case, rounded
from .example import WRITTEN_HERE

GITHUB = "https://github.com/"
EXECUTORCH = GITHUB + "pytorch/executorch/"
PYTORCH = GITHUB + "pytorch/pytorch/"


@case(
    PYTORCH + "issues/169118",
    "predicate of a branch, set afterwards",
    rounded((2,)),
    {"ready": zeros(1, dtype=torch.bool)},
)
def cond_reads_flag_then_set(m: Any, x: Tensor) -> Tensor:
    y: Tensor = torch.cond(m.ready, lambda t: t + 1.0, lambda t: t + 0.0, (x,))
    m.ready.fill_(True)
    return y


@case(PYTORCH + "issues/115277", "mutation inside a branch", rounded((2,)), {"b": zeros(2)})
def cond_mutates_buffer(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    def changed(t: Tensor) -> Tensor:
        m.b.add_(5)
        return t.cos() + m.b.sum()

    def unchanged(t: Tensor) -> Tensor:
        return t.sin()

    y: Tensor = torch.cond(x.sum() > 2, changed, unchanged, (x,))
    return y, m.b * 1.0


@case(
    EXECUTORCH + "pull/16366",
    "new value comes out of a branch that reads the buffer",
    rounded((2, 2)),
    {"kc": zeros(2, 2), "n": zeros(1)},
)
def cond_select_cache(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    new = torch.cond(m.n.sum() > 0, lambda c, v: c + 0.0, lambda c, v: v * 2.0, (m.kc, x))
    m.kc.copy_(new)
    m.n.add_(1)
    return new.sum(0), m.kc * 1.0


@case(
    EXECUTORCH + "issues/21490",
    "result of a branch is written back and read after temporaries",
    rounded((4,)),
    {"s": zeros(4)},
)
def cond_out_early_free(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    chosen = torch.cond(x.sum() >= 0, lambda v, s: v + s, lambda v, s: v - s, (x, m.s))
    m.s.copy_(chosen)
    h = x * 5.0
    h = torch.tanh(h) + torch.relu(h)
    return h, chosen * 2.0


@case(WRITTEN_HERE, "results of two branches are alive together", rounded((4,)), {"s": zeros(4)})
def cond_two_alive(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    first = torch.cond(x.sum() >= 0, lambda v: v * 2.0, lambda v: v * 3.0, (x,))
    second = torch.cond(x.sum() >= 1, lambda v, s: v + s, lambda v, s: v - s, (x, m.s))
    m.s.copy_(second)
    return first + 1.0, first * second


@case(PYTORCH + "pull/195393", "state carried through a loop", rounded((2,)), {"acc": zeros(2)})
def while_loop_state(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    from torch._higher_order_ops.while_loop import while_loop

    start = torch.zeros((), dtype=torch.int64)
    steps, carried = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 0.5 + x), (start, m.acc + 0.0))
    was = m.acc * 1.0
    m.acc.copy_(carried)
    return was, carried + steps


@case(WRITTEN_HERE, "old contents read in every round of a map, then overwritten", rounded((3, 2)), {"gain": zeros(2)})
def map_reads_state(m: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops.map import map as map_rows

    rows: Tensor = map_rows(lambda row, gain: row * 2.0 + gain, x, m.gain)
    m.gain.add_(x.sum(0))
    return rows


@case(WRITTEN_HERE, "state carried through the rounds of a scan", rounded((3, 2)), {"level": zeros(2)})
def scan_carries_state(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    from torch._higher_order_ops.scan import scan

    last, rows = scan(lambda level, row: (level * 0.5 + row, level + row), m.level.clone(), x)
    was = m.level * 1.0
    m.level.copy_(last)
    return rows, was


@case(
    WRITTEN_HERE, "two values that a scan carries swap in each round", rounded((3, 2)), {"a": zeros(2), "b": zeros(2)}
)
def scan_swaps_carried(m: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops.scan import scan

    (a, b), rows = scan(lambda c, row: ((c[1].clone(), c[0] + row), c[0] * 1.0), (m.a.clone(), m.b.clone()), x)
    m.a.copy_(a)
    m.b.copy_(b)
    return rows


@case(WRITTEN_HERE, "a branch within a branch reads the state", rounded((2,)), {"s": zeros(2)})
def cond_in_cond(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    def outer(t: Tensor, s: Tensor) -> Tensor:
        inner: Tensor = torch.cond(s.sum() > 1, lambda u, v: u + v, lambda u, v: u * 2.0, (t, s))
        return inner + 1.0

    new: Tensor = torch.cond(x.sum() > 0, outer, lambda t, s: t - s, (x, m.s))
    was = m.s * 1.0
    m.s.copy_(new)
    return new * 3.0, was


@case(
    EXECUTORCH + "issues/4042",
    "mutable custom operator turned in-place while a view of the old contents lives",
    rounded((1, 1, 1, 2)),
    {"kc": zeros(1, 4, 1, 2)},
    imports=("executorch.extension.llm.custom_ops.custom_ops",),
)
def update_cache_custom_op(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    old = m.kc.clone().view(4, 2)
    torch.ops.llama.update_cache(x, m.kc, 0)
    return m.kc * 1.0, old
