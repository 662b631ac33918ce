"""Hazard cases about who shares storage with a buffer: views, slices, outputs, operations made in-place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn, zeros

from .case import cache_writes, case, module, rounded
from .example import WRITTEN_HERE, Calls, Example

GITHUB = "https://github.com/"
EXECUTORCH = GITHUB + "pytorch/executorch/"
PYTORCH = GITHUB + "pytorch/pytorch/"


@case(EXECUTORCH + "pull/2461", "late read through chained views", rounded((4,)), {"st": zeros(4)})
def view_chain_matmul(m: Any, x: Tensor) -> Tensor:
    seen = m.st.view(2, 2).view(4, 1).view(2, 2)
    fresh = m.st + x
    product: Tensor = seen.t() @ seen + x.view(2, 2)
    m.st.copy_(fresh)
    return product


def _integers() -> Calls:
    return [(torch.arange(4, dtype=torch.int32) + i,) for i in range(3)]


@case(
    PYTORCH + "issues/198101",
    "read through a view of another type, then mutation",
    _integers,
    {"w": zeros(4, dtype=torch.int32)},
    check_ir=False,
)
def dtype_view_read(m: Any, x: Tensor) -> Tensor:
    y = m.w.view(torch.float32) * 2
    y = y - 4
    m.w.copy_(x)
    return y


@case(
    GITHUB + "tensorflow/haskell/issues/92",
    "view of the old contents returned",
    rounded((4,)),
    {"w": zeros(4)},
)
def view_of_buffer_returned(m: Any, x: Tensor) -> Tensor:
    old: Tensor = m.w.clone().view(2, 2)
    m.w.copy_(m.w * 0.5 + x)
    return old


@case(GITHUB + "tensorflow/haskell/issues/92", "the buffer itself returned", rounded((4,)), {"w": zeros(4)})
def buffer_itself_returned(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    m.w.add_(x)
    return m.w, m.w.view(2, 2)


@case(PYTORCH + "issues/80271", "write through a slice of a row", rounded((2,)), {"c": zeros(3, 4)})
def slice_views_write(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    row = m.c[1]
    row[:2] = x
    m.c[:, 2:].add_(1.0)
    return m.c.sum(1), row * 2


def _pairs_and_positions() -> Calls:
    return [(torch.tensor([1.0, 2.0]) * (i + 1), torch.tensor([i, i + 2])) for i in range(4)]


@case(
    PYTORCH + "pull/171364",
    "index_put through a flat view of the buffer",
    _pairs_and_positions,
    {"c": zeros(4, 2)},
)
def view_index_put(m: Any, x: Tensor, p: Tensor) -> Tensor:
    m.c.view(-1)[p] = x
    result: Tensor = m.c * 1.0
    return result


@case(PYTORCH + "issues/198270", "buffer added to its own reversal", rounded((4,)), {"s": zeros(4)})
def index_put_then_flip(m: Any, x: Tensor) -> Tensor:
    m.s.index_put_((torch.arange(4),), x * 2.0 + m.s)
    m.s.add_(m.s.flip(0))
    result: Tensor = m.s.clone()
    return result


@case(PYTORCH + "issues/98143", "in-place on a view that overlaps itself", rounded((5,)), {"u": zeros(5)})
def overlap_unfold_abs(m: Any, x: Tensor) -> Tensor:
    m.u.add_(x)
    m.u.unfold(0, 3, 2).abs_()
    result: Tensor = m.u * 1.0
    return result


@case(PYTORCH + "issues/153861", "write through an expanded view", rounded((3,)), {"e": zeros(1)})
def expand_stride0_write(m: Any, x: Tensor) -> Tensor:
    expanded = m.e.expand(3)
    expanded[0].add_(x[0])
    result: Tensor = m.e + x
    return result


@case(PYTORCH + "issues/104505", "as_strided of another view, mutated", rounded((2,)), {"d": zeros(2, 4)})
def diagonal_as_strided(m: Any, x: Tensor) -> Tensor:
    m.d.diagonal().as_strided((2,), (1,), 0).add_(x)
    result: Tensor = m.d * 1.0
    return result


@case(
    EXECUTORCH + "pull/21979",
    "new value is a slice of a concatenation",
    rounded((1, 2, 1), n=5),
    {"cs": zeros(1, 2, 3)},
)
def cat_roll_state(m: Any, x: Tensor) -> Tensor:
    full = torch.cat([m.cs, x], dim=-1)
    y = (full * full).sum(-1)
    m.cs.copy_(full[..., -3:])
    return y


@case(EXECUTORCH + "pull/2462", "late read through squeeze and unsqueeze", rounded((1, 4)), {"s": zeros(1, 4)})
def squeeze_old_read_late(m: Any, x: Tensor) -> Tensor:
    column = m.s.squeeze(0).unsqueeze(-1)
    following = m.s * 0.5 + x
    y: Tensor = column * 2.0 + torch.relu(x).reshape(4, 1)
    m.s.copy_(following)
    return y


@case(
    EXECUTORCH + "issues/7345",
    "new value is a view of another buffer, whose own copy comes first",
    rounded((2, 2), n=5),
    {"a": zeros(2, 2), "b": zeros(4)},
)
def value_view_other_buffer(m: Any, x: Tensor) -> Tensor:
    report: Tensor = m.b + 0.0
    following = m.a * 0.5 + x
    m.b.copy_(m.a.view(4))
    m.a.copy_(following)
    return report


@case(WRITTEN_HERE, "copying cast to the same type, removed as a no-op", rounded((4,)), {"a": zeros(4)})
def old_kept_by_cast(m: Any, x: Tensor) -> Tensor:
    old: Tensor = m.a.to(torch.float32, copy=True)
    m.a.add_(x)
    return old


@case(
    EXECUTORCH + "issues/7345",
    "new value is a view of another buffer's old contents",
    rounded((2, 2), n=5),
    {"b": zeros(4), "a": zeros(2, 2)},
)
def value_view_other_buffer_rev(m: Any, x: Tensor) -> Tensor:
    report: Tensor = m.b + 0.0
    following = m.a * 0.5 + x
    m.b.copy_(m.a.view(4))
    m.a.copy_(following)
    return report


@case(
    EXECUTORCH + "pull/19482",
    "operation made in-place overwrites a value that is returned",
    cache_writes(4),
    {"a": zeros(4)},
)
def reinplace_old_value_returned(m: Any, x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    kept = torch.relu(m.a) + 1.0
    updated = kept.index_put((p,), x)
    m.a.copy_(updated * 0.5)
    return kept, updated


@case(
    EXECUTORCH + "pull/19482",
    "operation made in-place overwrites what a view reads later",
    cache_writes(4),
    {"a": zeros(4)},
)
def reinplace_view_of_old(m: Any, x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    seen = m.a.view(2, 2)
    updated = m.a.index_put((p,), x)
    late = seen * 3.0
    m.a.copy_(updated)
    return late, updated + 1


def _two_names(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    m.a.add_(x)
    doubled = m.b * 2
    m.b.mul_(0.5)
    return doubled, m.a + 0.0


def _tied() -> tuple[nn.Module, Calls]:
    made: Any = module(_two_names, {"a": zeros(3)})
    made.register_buffer("b", made.a)
    return made, rounded((3,))()


def _overlapping() -> tuple[nn.Module, Calls]:
    made: Any = module(_two_names, {"a": zeros(4)})
    made.register_buffer("b", made.a[1:3])
    return made, rounded((4,))()


tied_buffers = Example("tied_buffers", PYTORCH + "pull/122824", _tied, "two names of one storage")
overlapping_buffers = Example(
    "overlapping_buffers", PYTORCH + "pull/122824", _overlapping, "one buffer is a slice of another"
)
