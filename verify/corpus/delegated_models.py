"""Stateful models that XNNPACK runs in part: some delegates read the old state, some make the new one.

A delegate is one step with many operators inside: it reads all its operands until it is done, and gives all its results
at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .example import WRITTEN_HERE, Calls, Example
from .own_models import State, random_calls


class _NormalisedGRU(State):
    """A recurrent cell with a normalised gate, and how many units rose; norm and count are not delegated."""

    hidden: Tensor

    def __init__(self) -> None:
        super().__init__(hidden=(1, 8))
        self.gate, self.candidate, self.norm = nn.Linear(16, 16), nn.Linear(16, 8), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        update, reset = torch.sigmoid(self.norm(self.gate(torch.cat([x, self.hidden], dim=1)))).chunk(2, dim=1)
        candidate = torch.tanh(self.candidate(torch.cat([x, reset * self.hidden], dim=1)))
        hidden = self.hidden + update * (candidate - self.hidden)
        rose = (hidden > self.hidden).sum()
        self.hidden.copy_(hidden)
        return hidden * 2.0, rose


def _normalised_gru() -> tuple[nn.Module, Calls]:
    return _NormalisedGRU().requires_grad_(False), random_calls((1, 8))


class _Decoder(State):
    """One block of a decoder on one token: projections and attention are delegated, the cache is written outside."""

    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__(keys=(2, 8, 4), values=(2, 8, 4))
        self.norm, self.norm_after = nn.LayerNorm(8), nn.LayerNorm(8)
        self.query, self.key, self.value, self.leave = (nn.Linear(8, 8) for _ in range(4))
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        normed = self.norm(x)
        self.keys.index_copy_(1, pos, self.key(normed).view(2, 1, 4))
        self.values.index_copy_(1, pos, self.value(normed).view(2, 1, 4))
        scores = self.query(normed).view(2, 1, 4) @ self.keys.transpose(1, 2)
        visible = torch.arange(8).view(1, 1, 8) <= pos
        weights = torch.softmax((0.5 * scores).masked_fill(~visible, -1e9), dim=-1)
        x = x + self.leave((weights @ self.values).view(1, 8))
        y: Tensor = x + self.down(F.relu(self.up(self.norm_after(x))))
        return y


def _decoder() -> tuple[nn.Module, Calls]:
    return _Decoder().requires_grad_(False), [(torch.randn(1, 8), torch.tensor([i])) for i in range(5)]


class _StreamingConvolution(State):
    """A causal convolution, delegated, on as many frames as its kernel looks back; they are the next history."""

    history: Tensor

    def __init__(self) -> None:
        super().__init__(history=(1, 8, 4))
        self.mix = nn.Conv1d(8, 8, 3, dilation=2)

    def forward(self, frames: Tensor) -> Tensor:
        y: Tensor = frames + F.relu(self.mix(torch.cat([self.history, frames], dim=-1)))
        self.history.copy_(frames)
        return y


def _convolutions() -> tuple[nn.Module, Calls]:
    layers = [_StreamingConvolution(), nn.GroupNorm(2, 8), _StreamingConvolution()]
    return nn.Sequential(*layers).requires_grad_(False), random_calls((1, 8, 4))


def _delegated(name: str, build: Callable[[], tuple[nn.Module, Calls]], hazard: str) -> Example:
    return Example(name, WRITTEN_HERE, build, hazard, partition=True)


DELEGATED_MODELS: tuple[Example, ...] = (
    _delegated("delegated_gru", _normalised_gru, "delegate makes the new state, the old one is read after"),
    _delegated("delegated_decoder", _decoder, "delegate reads the cache that was just written outside"),
    _delegated("delegated_convolutions", _convolutions, "new history is known before a delegate reads the old"),
)
"""Models written for this corpus, with what XNNPACK can run delegated to it."""
