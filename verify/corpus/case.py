"""A hazard case from one function: the function is the module's `forward`, its buffers stand beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .example import Calls, Example


def case(
    origin: str,
    hazard: str,
    calls: Callable[[], Calls],
    buffers: dict[str, Tensor],
    *,
    persistent: bool = True,
    **options: Any,
) -> Callable[[Callable[..., Any]], Example]:
    """Turns `forward(module, *inputs)` into the Example of that name.

    Args:
        origin: the address of the public report that has this shape, or WRITTEN_HERE.
        hazard: what a wrong pass gets wrong here.
        calls: makes the argument tuples of the consecutive calls.
        buffers: the module's buffers with their initial contents, in the order they are registered.
        persistent: whether the buffers belong to the module's state dict.
        options: further fields of the Example.
    """

    def of(forward: Callable[..., Any]) -> Example:
        def build() -> tuple[nn.Module, Calls]:
            return module(forward, buffers, persistent), calls()

        return Example(forward.__name__, origin, build, hazard, **options)

    return of


def module(forward: Callable[..., Any], buffers: dict[str, Tensor], persistent: bool = True) -> nn.Module:
    """A module with its own copies of `buffers` whose method `forward` is the given function."""
    made: nn.Module = type("Case", (nn.Module,), {"forward": forward})()
    for name, contents in buffers.items():
        made.register_buffer(name, contents.clone(), persistent=persistent)
    return made


def rounded(*shapes: tuple[int, ...], n: int = 4, scale: float = 1.0) -> Callable[[], Calls]:
    """Makes `n` argument tuples with one tensor of each shape; the values are multiples of `scale` / 4."""

    def calls() -> Calls:
        generator = torch.Generator().manual_seed(7)
        return [
            tuple(torch.round(torch.randn(*shape, generator=generator) * 8) / 4 * scale + i for shape in shapes)
            for i in range(n)
        ]

    return calls


def cache_writes(n: int, wrap: int = 4) -> Callable[[], Calls]:
    """Makes `n` argument tuples of one value and the position, modulo `wrap`, where a cache takes it."""
    return lambda: [(torch.tensor([1.0 + i]), torch.tensor([i % wrap])) for i in range(n)]
