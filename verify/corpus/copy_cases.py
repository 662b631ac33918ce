"""Hazard cases about what is written back: buffer to buffer, several targets, user inputs, initial state."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn, zeros

from .case import cache_writes, case, rounded
from .example import WRITTEN_HERE, Calls, Example

GITHUB = "https://github.com/"
EXECUTORCH = GITHUB + "pytorch/executorch/"
PYTORCH = GITHUB + "pytorch/pytorch/"
TENSORRT = GITHUB + "pytorch/TensorRT/"


@case(EXECUTORCH + "pull/12008", "two buffers swapped", rounded((3,)), {"p": zeros(3), "q": zeros(3)})
def swap_pair(m: Any, x: Tensor) -> Tensor:
    before: Tensor = m.p * 1.0 + m.q * 10.0
    hold = m.p.clone()
    m.p.copy_(m.q)
    m.q.copy_(hold)
    m.q.add_(x)
    return before


@case(
    EXECUTORCH + "pull/7810",
    "buffer copied whole to another buffer, which is then overwritten",
    rounded((2,)),
    {"front": zeros(2), "back": zeros(2)},
)
def pingpong_pure(m: Any, x: Tensor) -> Tensor:
    seen: Tensor = m.front + 0.0
    m.front.copy_(m.back)
    m.back.copy_(x)
    return seen


@case(WRITTEN_HERE, "three buffers rotated", rounded((3,)), {"a": zeros(3), "b": zeros(3), "c": zeros(3)})
def rotate_three(m: Any, x: Tensor) -> Tensor:
    seen: Tensor = m.a + m.b * 10.0 + m.c * 100.0
    hold = m.a.clone()
    m.a.copy_(m.b)
    m.b.copy_(m.c)
    m.c.copy_(hold)
    m.a.add_(x)
    return seen


@case(
    WRITTEN_HERE,
    "buffer reset from a constant one",
    rounded((3,)),
    {"state": zeros(3), "initial": torch.arange(1.0, 4.0)},
)
def reset_from_constant(m: Any, x: Tensor) -> Tensor:
    seen: Tensor = m.state * x
    m.state.copy_(m.initial)
    return seen


@case(EXECUTORCH + "issues/7515", "user input copied straight into the buffer", rounded((3,)), {"mem": zeros(3)})
def set_state_last_op(m: Any, x: Tensor) -> Tensor:
    previous: Tensor = m.mem + 0.5
    m.mem.copy_(x)
    return previous


@case(
    PYTORCH + "pull/198132",
    "copy through a full slice, removed as a no-op before the source changes",
    rounded((4,)),
    {"dst": zeros(4), "src": zeros(4)},
)
def full_slice_then_bump(m: Any, x: Tensor) -> Tensor:
    report: Tensor = m.dst - 3.0
    m.dst[0:] = m.src[0:]
    m.src.add_(x)
    return report


@case(
    TENSORRT + "pull/4470",
    "one value written to two buffers and returned",
    rounded((4,)),
    {"a": zeros(4), "b": zeros(4)},
)
def same_value_two_buffers(m: Any, x: Tensor) -> Tensor:
    value = x * 2 + m.a - m.b
    m.a.copy_(value)
    m.b.copy_(value)
    m.a.mul_(0.5)
    return value + 0


def _rows_and_positions() -> Calls:
    return [(torch.full((1, 2), float(i + 1)), torch.tensor([i % 4])) for i in range(4)]


@case(
    TENSORRT + "pull/4445",
    "order of mutation outputs and user outputs",
    _rows_and_positions,
    {"kc": zeros(4, 2), "cs": zeros(3)},
)
def mutations_plus_user_outputs(m: Any, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
    m.kc.index_put_((pos,), x)
    logits = (m.kc * 2).sum(0)
    following = torch.cat([m.cs[1:], logits[:1]])
    m.cs.copy_(following)
    return logits, following.sum()


@case(
    GITHUB + "Xilinx/mlir-aie/issues/3656",
    "buffer is operand and result of one operation",
    rounded((2, 2), scale=0.25),
    {"h": zeros(2, 2)},
)
def residual_inplace(m: Any, x: Tensor) -> Tensor:
    m.h.copy_(m.h + torch.tanh(m.h @ x))
    m.h.add_(x)
    result: Tensor = m.h @ x
    return result


@case(
    GITHUB + "dsharlet/slinky/pull/736",
    "value is returned, written back and read later",
    rounded((3,)),
    {"a": zeros(3)},
)
def output_feeds_next_stage(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = m.a + x
    m.a.copy_(y)
    z = torch.sigmoid(y) + m.a
    m.a.mul_(0.5)
    return y, z


@case(PYTORCH + "pull/185077", "counter folded to a constant", rounded((3,)), {"n": zeros(1)})
def counter_scalar(m: Any, x: Tensor) -> Tensor:
    m.n.add_(1)
    return x + m.n


@case(PYTORCH + "pull/123909", "state read before it is changed", rounded((2,)), {"state": zeros(1)})
def read_then_bump(m: Any, x: Tensor) -> Tensor:
    y = x + m.state
    m.state.add_(1)
    return y


@case(PYTORCH + "issues/111676", "augmented assignment to a buffer", rounded((2,)), {"foo": zeros(2)})
def augmented_assign(m: Any, x: Tensor) -> Tensor:
    m.foo += x
    result: Tensor = m.foo + 0
    return result


@case(
    GITHUB + "apple/coremltools/issues/1726",
    "in-place change ignored",
    rounded((3,)),
    {"a": zeros(3)},
)
def scale_then_update(m: Any, x: Tensor) -> Tensor:
    scaled = x * m.a
    m.a.copy_(0.9 * m.a + 0.1 * x.abs())
    return scaled


@case(
    EXECUTORCH + "pull/11990",
    "buffer outside the state dict",
    rounded((3,)),
    {"a": zeros(3)},
    persistent=False,
)
def nonpersistent_buffer(m: Any, x: Tensor) -> Tensor:
    m.a.copy_(m.a * 0.5 + x)
    result: Tensor = m.a * 2
    return result


@case(PYTORCH + "issues/178868", "copy broadcasts a row into the buffer", rounded((3,)), {"k": zeros(2, 3)})
def broadcast_copy(m: Any, x: Tensor) -> Tensor:
    was: Tensor = m.k + 0.0
    m.k.copy_(x)
    return was


@case(
    EXECUTORCH + "pull/7279",
    "buffer that does not start at zero",
    rounded((3,)),
    {"a": torch.arange(3.0)},
    initialised=("a",),
)
def init_nonzero_with_pass(m: Any, x: Tensor) -> Tensor:
    m.a.add_(1.0)
    result: Tensor = m.a + x
    return result


@case(
    WRITTEN_HERE,
    "buffer that starts like a constant of the model",
    rounded((3,)),
    {"k": torch.full((3,), 2.0), "a": torch.full((3,), 1.0), "b": torch.full((3,), 2.0)},
    initialised=("a", "b"),
)
def init_like_a_constant(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    m.a.add_(x)
    m.b.add_(m.k)
    return m.a * 1.0, m.b * x


class _Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = cast(Any, nn.BatchNorm1d(2))
        self.bn.running_var.zero_()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.bn(x), self.bn.running_mean * 1.0, self.bn.num_batches_tracked + 0


def _normalised() -> tuple[nn.Module, Calls]:
    calls: Calls = [(torch.randn(4, 2, generator=torch.Generator().manual_seed(i)),) for i in range(3)]
    return _Normalised().train(), calls


batchnorm_train = Example(
    "batchnorm_train",
    EXECUTORCH + "pull/19980",
    _normalised,
    "running statistics of a normalisation in training",
    decompose=("aten._native_batch_norm_legit_functional",),
    check_ir=False,
)


@case(EXECUTORCH + "issues/11870", "user input changed in place", rounded((3,)), {})
def input_mutation_extra_out(m: Any, x: Tensor) -> Tensor:
    y = x * 2
    x.add_(1)
    return y


@case(GITHUB + "tenstorrent/tt-mlir/issues/9328", "input changed and kept", rounded((3,)), {"m": zeros(3)})
def input_mut_and_buffer(m: Any, x: Tensor) -> Tensor:
    result: Tensor = m.m + 0.0
    x.mul_(2)
    m.m.copy_(x)
    x.add_(1)
    return result


@case(
    EXECUTORCH + "pull/12182",
    "user input changed early, with temporaries of its size after",
    rounded((4, 4), n=3, scale=0.25),
    {},
)
def input_mut_long_tail_matmul(m: Any, x: Tensor) -> Tensor:
    y = x * 3.0
    x.copy_(y - 1.0)
    z = y.t() @ y
    w = z.sin() + z.cos() * 2
    return w.exp() + w


@case(
    EXECUTORCH + "pull/12008",
    "chain of in-place operations that ends at a different buffer",
    cache_writes(5),
    {"a": zeros(4), "b": zeros(4)},
    check_ir=False,
)
def lineage_wrong_buffer(m: Any, x: Tensor, p: Tensor) -> Tensor:
    report: Tensor = m.b * 1.0
    m.a.index_put_((p,), x)
    m.b.copy_(m.a)
    return report


@case(
    EXECUTORCH + "pull/12008",
    "one value from an index_put of one buffer, written to both",
    cache_writes(5),
    {"a": zeros(4), "b": zeros(4)},
    check_ir=False,
)
def lineage_wrong_buffer2(m: Any, x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    report: Tensor = m.b * 1.0
    updated = torch.index_put(m.a, (p,), x)
    m.a.copy_(updated)
    m.b.copy_(updated)
    return report, updated


@case(
    EXECUTORCH + "pull/12008",
    "one buffer in place, one copied: order of the outputs",
    cache_writes(5),
    {"a": zeros(4), "b": zeros(4)},
)
def lineage_mixed_order(m: Any, x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    m.a.index_put_((p,), x)
    total = m.a.sum()
    m.b.copy_(m.b * 0.5 + total)
    return m.b * 1.0, total


@case(
    TENSORRT + "pull/4470",
    "one node is the new value of two buffers",
    rounded((4,)),
    {"a": zeros(4), "b": zeros(4)},
    check_ir=False,
)
def two_buffers_same_node(m: Any, x: Tensor) -> Tensor:
    report: Tensor = m.b * 1.0
    m.a.add_(x)
    m.b.copy_(m.a)
    return report
