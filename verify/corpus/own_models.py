"""Stateful models written by hand, each a dozen lines: state to stream, to train, to cache with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .example import WRITTEN_HERE, Calls, Example


def random_calls(*shapes: tuple[int, ...], n: int = 4) -> Calls:
    """`n` calls with one normally distributed tensor of each shape."""
    return [tuple(torch.randn(*shape) for shape in shapes) for _ in range(n)]


class State(nn.Module):
    """A module whose buffers all start at zero; `shapes` gives their names and sizes."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))


class _DilatedConvolution(State):
    """One layer of a WaveNet on one frame: the history holds the frames that the kernel spans."""

    history: Tensor

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__(history=(1, channels, dilation))
        self.now = nn.Conv1d(channels, 2 * channels, 1)
        self.before = nn.Conv1d(channels, 2 * channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = (self.now(x) + self.before(self.history[..., :1])).chunk(2, dim=1)
        self.history.copy_(torch.cat([self.history[..., 1:], x], dim=-1))
        return x + torch.sigmoid(gate) * torch.tanh(value)


def _wavenet() -> tuple[nn.Module, Calls]:
    layers = [_DilatedConvolution(8, 2**i) for i in range(4)]
    return nn.Sequential(*layers), random_calls((1, 8, 1), n=6)


class _DelayLine(State):
    """Four taps of whole buffers, each handed to the next one."""

    a: Tensor
    b: Tensor
    c: Tensor

    def forward(self, x: Tensor) -> Tensor:
        y = x + 0.5 * self.a + 0.25 * self.b + 0.125 * self.c
        self.c.copy_(self.b)
        self.b.copy_(self.a)
        self.a.copy_(x)
        return y


def _delay_line() -> tuple[nn.Module, Calls]:
    return _DelayLine(a=(8,), b=(8,), c=(8,)), random_calls((8,), n=5)


class _GRU(State):
    """Two recurrent cells, one above the other, on one frame."""

    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__(low=(1, 8), high=(1, 8))
        self.cells = nn.ModuleList(nn.GRUCell(8, 8) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        self.low.copy_(self.cells[0](x, self.low))
        self.high.copy_(self.cells[1](self.low, self.high))
        return self.high * 2.0


def _gru() -> tuple[nn.Module, Calls]:
    return _GRU(), random_calls((1, 8))


class _OnlineNormaliser(State):
    """Mean and variance over all frames so far (Welford); the frame is normalised with them."""

    count: Tensor
    mean: Tensor
    spread: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1.0)
        off = x - self.mean
        self.mean.add_(off / self.count)
        self.spread.add_(off * (x - self.mean))
        return (x - self.mean) / torch.sqrt(self.spread / self.count + 1e-5)


def _normaliser() -> tuple[nn.Module, Calls]:
    return _OnlineNormaliser(count=(1,), mean=(8,), spread=(8,)), random_calls((8,))


class _Momentum(State):
    """A step of gradient descent with momentum for two linear layers, gradients by hand."""

    w1: Tensor
    w2: Tensor
    v1: Tensor
    v2: Tensor

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        hidden = torch.tanh(x @ self.w1)
        error = hidden @ self.w2 - y
        g2 = hidden.t() @ error
        g1 = x.t() @ ((error @ self.w2.t()) * (1.0 - hidden * hidden))
        for w, v, g in ((self.w1, self.v1, g1), (self.w2, self.v2, g2)):
            v.mul_(0.9).add_(g)
            w.sub_(0.05 * v)
        return (error * error).mean()


def _momentum() -> tuple[nn.Module, Calls]:
    model = _Momentum(w1=(6, 8), w2=(8, 3), v1=(6, 8), v2=(8, 3))
    model.w1.normal_()
    model.w2.normal_()
    return model, random_calls((4, 6), (4, 3))


class _Adam(State):
    """A step of Adam for one linear layer; both moments and the step count are buffers."""

    w: Tensor
    first: Tensor
    second: Tensor
    step: Tensor

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        error = x @ self.w - y
        gradient = x.t() @ error
        self.step.add_(1.0)
        self.first.mul_(0.9).add_(0.1 * gradient)
        self.second.mul_(0.99).add_(0.01 * gradient * gradient)
        mean = self.first / (1.0 - torch.exp(self.step * -0.10536052))
        square = self.second / (1.0 - torch.exp(self.step * -0.01005034))
        self.w.sub_(0.1 * mean / (torch.sqrt(square) + 1e-8))
        return (error * error).mean()


def _adam() -> tuple[nn.Module, Calls]:
    return _Adam(w=(6, 3), first=(6, 3), second=(6, 3), step=(1,)), random_calls((4, 6), (4, 3))


class _SelectiveStateSpace(State):
    """One Mamba-like block on one frame: a short convolution's history and a state space."""

    history: Tensor
    state: Tensor

    def __init__(self) -> None:
        super().__init__(history=(8, 3), state=(8, 4))
        self.kernel = nn.Parameter(torch.randn(8, 4))
        self.decay = nn.Parameter(torch.rand(8, 4))
        self.enter, self.choose, self.leave = nn.Linear(8, 16), nn.Linear(8, 9), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        frame, gate = self.enter(x).chunk(2, dim=-1)
        window = torch.cat([self.history, frame.view(8, 1)], dim=1)
        self.history.copy_(window[:, 1:])
        u = F.silu((window * self.kernel).sum(1)).view(1, 8)
        chosen = self.choose(u)
        pace = F.softplus(chosen[:, :1])
        self.state.copy_(self.state * torch.exp(-pace * self.decay) + pace * u.t() * chosen[:, 1:5])
        y: Tensor = x + self.leave((self.state * chosen[:, 5:]).sum(1).view(1, 8) * F.silu(gate))
        return y


def _state_space() -> tuple[nn.Module, Calls]:
    return nn.Sequential(_SelectiveStateSpace(), _SelectiveStateSpace()), random_calls((1, 8))


class _TemporalShift(State):
    """A video network's shift: a quarter of the channels comes from the frame before."""

    before: Tensor

    def __init__(self) -> None:
        super().__init__(before=(1, 2, 6, 6))
        self.mix = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, frame: Tensor) -> Tensor:
        y: Tensor = F.relu(self.mix(torch.cat([self.before, frame[:, 2:]], dim=1)))
        self.before.copy_(frame[:, :2])
        return y


def _temporal_shift() -> tuple[nn.Module, Calls]:
    return nn.Sequential(_TemporalShift(), _TemporalShift()), random_calls((1, 8, 6, 6))


class _FrameDifference(State):
    """Motion against the frame before and against a slowly learned background."""

    before: Tensor
    background: Tensor

    def forward(self, frame: Tensor) -> tuple[Tensor, Tensor]:
        motion = (frame - self.before).abs()
        foreground = (frame - self.background).abs()
        self.background.mul_(0.9).add_(0.1 * frame)
        self.before.copy_(frame)
        return motion, foreground


def _frame_difference() -> tuple[nn.Module, Calls]:
    return _FrameDifference(before=(1, 3, 8, 8), background=(1, 3, 8, 8)), random_calls((1, 3, 8, 8))


class _UNet(State):
    """A U-Net on video: each level blends its skip connection with that of the frame before."""

    fine: Tensor
    coarse: Tensor

    def __init__(self) -> None:
        super().__init__(fine=(1, 4, 8, 8), coarse=(1, 8, 4, 4))
        self.down1, self.down2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.up2, self.up1 = nn.Conv2d(16, 4, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, frame: Tensor) -> Tensor:
        fine = F.relu(self.down1(frame))
        coarse = F.relu(self.down2(fine))
        x = F.interpolate(F.relu(self.middle(coarse)), scale_factor=2.0)
        x = F.relu(self.up2(torch.cat([x, 0.5 * (coarse + self.coarse)], dim=1)))
        self.coarse.copy_(coarse)
        x = torch.cat([F.interpolate(x, scale_factor=2.0), 0.5 * (fine + self.fine)], dim=1)
        self.fine.copy_(fine)
        y: Tensor = self.up1(x)
        return y


def _unet() -> tuple[nn.Module, Calls]:
    return _UNet(), random_calls((1, 3, 8, 8))


class _SharedCache(State):
    """You only cache once: one layer writes keys and values, all later layers read them."""

    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__(keys=(8, 16), values=(8, 16))
        self.to_key, self.to_value = nn.Linear(16, 16), nn.Linear(16, 16)
        self.queries = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        self.keys.index_copy_(0, pos, self.to_key(x))
        self.values.index_copy_(0, pos, self.to_value(x))
        visible = torch.arange(8).view(1, 8) <= pos.view(1, 1)
        for query in self.queries:
            scores = (query(x) @ self.keys.t()).masked_fill(~visible, -1e9)
            x = x + torch.softmax(scores, dim=-1) @ self.values
        return x


def _shared_cache() -> tuple[nn.Module, Calls]:
    return _SharedCache(), [(torch.randn(1, 16), torch.tensor([i])) for i in range(5)]


class _Codebook(State):
    """Vector quantisation whose codes follow the vectors that chose them, by moving averages."""

    codes: Tensor
    counts: Tensor
    sums: Tensor

    def forward(self, x: Tensor) -> Tensor:
        distances = ((x.unsqueeze(1) - self.codes.unsqueeze(0)) ** 2).sum(-1)
        chosen = (distances <= distances.amin(1, keepdim=True)).to(x.dtype)
        nearest = chosen @ self.codes
        self.counts.mul_(0.9).add_(0.1 * chosen.sum(0))
        self.sums.mul_(0.9).add_(0.1 * (chosen.t() @ x))
        self.codes.copy_(self.sums / (self.counts.unsqueeze(1) + 1e-3))
        return nearest


def _codebook() -> tuple[nn.Module, Calls]:
    model = _Codebook(codes=(5, 4), counts=(5,), sums=(5, 4))
    model.codes.normal_()
    return model, random_calls((6, 4))


def _own(
    name: str, build: Callable[[], tuple[nn.Module, Calls]], hazard: str, initialised: tuple[str, ...] = ()
) -> Example:
    return Example(name, WRITTEN_HERE, build, hazard, initialised=initialised, check_ir=False)


OWN_MODELS: tuple[Example, ...] = (
    _own("streaming_wavenet", _wavenet, "history of each dilated convolution"),
    _own("delay_line", _delay_line, "chain of copies of whole buffers"),
    _own("gru_in_buffers", _gru, "new value of one buffer is read for another"),
    _own("online_normaliser", _normaliser, "old and new mean are both read"),
    _own("momentum_sgd", _momentum, "weights and their velocities", ("w1", "w2")),
    _own("adam", _adam, "weights, moments, step count"),
    _own("state_space", _state_space, "history and state of each block"),
    _own("temporal_shift", _temporal_shift, "slice of the input kept for the next call"),
    _own("frame_difference", _frame_difference, "user input copied straight into the buffer"),
    _own("unet_skip_state", _unet, "large states, last read long after their new values are known"),
    _own("shared_cache", _shared_cache, "new value read by many layers"),
    _own("codebook", _codebook, "old codes are read, then replaced", ("codes",)),
)
"""Models written for this corpus."""
