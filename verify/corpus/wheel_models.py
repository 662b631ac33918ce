"""Models whose code ships in the executorch wheel (`executorch.examples.models`), small, random weights.

Each `_name()` builds one model and its calls; most are decoders called with one token and its position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .example import Calls, Example

WHEEL = "executorch.examples.models."
CUSTOM_OPS = "executorch.extension.llm.custom_ops.custom_ops"
QUANTIZED_OPS = "executorch.kernels.quantized"


class Decoder(nn.Module):
    """A language model as a function of tokens and positions."""

    def __init__(self, model: nn.Module, run: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.run = run

    def forward(self, tokens: Tensor, pos: Tensor) -> Tensor:
        return self.run(self.model, tokens, pos)


def token_calls(n: int = 4, each: int = 1, vocabulary: int = 128) -> Calls:
    """`n` calls that feed `each` tokens at a time, with their positions."""
    return [
        (
            torch.arange(i * each, (i + 1) * each)[None] * 7 % vocabulary,
            torch.arange(i * each, (i + 1) * each),
        )
        for i in range(n)
    ]


def _by_options(model: Any, tokens: Tensor, pos: Tensor) -> Tensor:
    logits: Tensor = model(tokens, {"input_pos": pos})
    return logits


def _by_first_position(model: Any, tokens: Tensor, pos: Tensor) -> Tensor:
    return _by_options(model, tokens, pos[:1])


def _by_arguments(model: Any, tokens: Tensor, pos: Tensor) -> Tensor:
    logits: Tensor = model(tokens, pos)
    return logits


def _transformer(**changes: Any) -> Any:
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    sizes: dict[str, Any] = {
        "dim": 64,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "vocab_size": 128,
        "hidden_dim": 128,
        "max_seq_len": 256,
        "max_context_len": 256,
        "use_kv_cache": True,
        "generate_full_logits": True,
    }
    return construct_transformer(ModelArgs(**(sizes | changes)))


def _llama(**changes: Any) -> tuple[nn.Module, Calls]:
    return Decoder(_transformer(**changes), _by_options), token_calls()


_HF_LAYOUT = {"use_qk_norm": True, "qk_norm_before_rope": True, "use_hf_rope": True, "head_dim": 32}


def _llama_dynamic() -> tuple[nn.Module, Calls]:
    model = _transformer(enable_dynamic_shape=True, max_seq_len=32, max_context_len=32)
    prompt = (torch.arange(3)[None], torch.arange(3))
    following: Calls = [(torch.tensor([[i]]), torch.tensor([i])) for i in range(3, 6)]
    return Decoder(model, _by_first_position), [prompt, *following]


def _token_count() -> Any:
    count = torch.export.Dim("count", min=1, max=16)
    return {"tokens": {1: count}, "pos": {0: count}}


def _qwen3_5() -> tuple[nn.Module, Calls]:
    return _llama(
        **_HF_LAYOUT,
        layer_types=["linear_attention", "full_attention"],
        linear_conv_kernel_dim=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        use_q_gate=True,
        partial_rotary_factor=0.25,
        rms_norm_add_unit_offset=True,
    )


def _ring_cache() -> tuple[nn.Module, Calls]:
    from executorch.examples.models.llama.attention import RingKVCache

    model = _transformer(enable_dynamic_shape=True, max_seq_len=32, max_context_len=32)
    for layer in model.layers:
        cache = layer.attention.kv_cache
        layer.attention.kv_cache = RingKVCache(1, 2, cache.n_heads, cache.head_dim, True)
    return Decoder(model, _by_options), token_calls(6)


def _attention_sink() -> tuple[nn.Module, Calls]:
    from executorch.examples.models.llama.source_transformation.attention_sink import (
        enable_attention_sink,
    )

    model = _transformer(enable_dynamic_shape=True, max_seq_len=32, max_context_len=32)
    model = enable_attention_sink(model, model.params, sink_size=1, window_size=2)
    return Decoder(model, _by_options), token_calls(7)


_CUSTOM = {
    "use_sdpa_with_kv_cache_op": True,
    "enable_dynamic_shape": True,
    "max_seq_len": 32,
    "max_context_len": 32,
}


def _custom_cache() -> tuple[nn.Module, Calls]:
    from executorch.examples.models.llama.source_transformation import custom_kv_cache, sdpa

    model = custom_kv_cache.replace_kv_cache_with_custom_kv_cache(_transformer(**_CUSTOM))
    return Decoder(sdpa.replace_sdpa_with_custom_op(model), _by_options), token_calls()


_SCALES = tuple(
    f"model.layers.{layer}.attention.kv_cache.{kind}_cache_{what}"
    for layer in range(2)
    for kind in ("k", "v")
    for what in ("scales", "zero_points")
)
"""Buffers of the quantised cache that do not start at zero."""


def _quantised_cache() -> tuple[nn.Module, Calls]:
    from executorch.examples.models.llama.source_transformation import custom_kv_cache, sdpa

    model = custom_kv_cache.replace_kv_cache_with_quantized_kv_cache(_transformer(**_CUSTOM))
    return Decoder(sdpa.replace_sdpa_with_custom_op(model), _by_options), token_calls()


def _gemma4_text() -> tuple[nn.Module, Calls]:
    from executorch.examples.models.gemma4.text_decoder.gemma4_config import Gemma4Config
    from executorch.examples.models.gemma4.text_decoder.gemma4_transformer import Gemma4ForCausalLM

    config = Gemma4Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        global_head_dim=32,
        vocab_size=128,
        intermediate_size=64,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=128,
        num_kv_shared_layers=2,
        max_seq_len=16,
        max_context_len=16,
        use_custom_sdpa=False,
        use_index_copy_for_kv_cache=True,
    )
    return Decoder(Gemma4ForCausalLM(config), _by_arguments), token_calls()


def _gemma4_logits(model: Any, tokens: Tensor, pos: Tensor) -> Tensor:
    """The model's `forward` without the random choice of a token at its end."""
    x = model.embed_tokens(tokens) * model.embed_normalizer
    masks = model._build_masks(pos)
    for layer in model.layers:
        x = layer(x, pos, *masks)
    logits: Tensor = model.lm_head(model.norm(x)[:, -1, :])
    return torch.tanh(logits / model.logit_softcap) * model.logit_softcap


def _gemma4_31b() -> tuple[nn.Module, Calls]:
    from executorch.examples.models.gemma4_31b.model import Gemma4_31B, Gemma4_31BConfig

    config = Gemma4_31BConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_global_key_value_heads=1,
        global_head_dim=32,
        sliding_window=2,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        max_seq_len=16,
    )
    return Decoder(Gemma4_31B(config), _gemma4_logits), token_calls(6)


def _muse_glimmer() -> tuple[nn.Module, Calls]:
    from executorch.examples.models.muse_glimmer.model.model import MuseGlimmerConfig, MuseGlimmerModel

    config = MuseGlimmerConfig(
        dim=32,
        n_layers=2,
        n_heads=4,
        n_kv_heads=2,
        head_dim=16,
        ffn_dim_multiplier=2.0,
        vocab_size=128,
        global_attn_cfg="[2,0]",
        every_n_layers_nope=2,
        max_seq_len=16,
    )
    return Decoder(MuseGlimmerModel(config).to(torch.bfloat16), _by_arguments), token_calls(6)


def _voxtral(**changes: Any) -> Any:
    from executorch.examples.models.voxtral_realtime.model import (
        VoxtralRealtimeConfig,
        VoxtralRealtimeModel,
    )

    sizes: dict[str, Any] = {
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "head_dim": 8,
        "hidden_dim": 64,
        "vocab_size": 128,
        "ada_rms_norm_t_cond_dim": 8,
        "enc_dim": 32,
        "enc_n_layers": 2,
        "enc_n_heads": 4,
        "enc_head_dim": 8,
        "enc_hidden_dim": 64,
        "num_mel_bins": 8,
        "max_seq_len": 32,
        "sliding_window": 4,
        "backend": "portable",
    }
    return VoxtralRealtimeModel(VoxtralRealtimeConfig(**(sizes | changes)))


def _voxtral_decoder() -> tuple[nn.Module, Calls]:
    from executorch.examples.models.voxtral_realtime.model import compute_time_embedding

    calls: Calls = [(torch.randn(1, 1, 32), torch.tensor([i]), compute_time_embedding(6, 32)) for i in range(4)]
    return _voxtral(backend="cuda").decoder, calls


def _voxtral_encoder() -> tuple[nn.Module, Calls]:
    from executorch.examples.models.voxtral_realtime.model import StreamingAudioEncoderExport

    encoder = StreamingAudioEncoderExport(_voxtral(streaming=True, backend="cuda"), max_enc_len=8)
    calls: Calls = [(torch.randn(1, 8, 8), torch.arange(4 * i, 4 * i + 4)) for i in range(5)]
    return encoder, calls


def _decoder(
    name: str,
    where: str,
    build: Callable[[], tuple[nn.Module, Calls]],
    hazard: str,
    **options: Any,
) -> Example:
    return Example(name, WHEEL + where, build, hazard, preserve=("aten.linear.default",), check_ir=False, **options)


_LLAMA = "llama.llama_transformer"
_SINK_POSITIONS = tuple(
    f"model.layers.{i}.attention.kv_cache.cache_positions_manager.cache_positions" for i in range(2)
)

WHEEL_MODELS: tuple[Example, ...] = (
    _decoder("llama_2_layers", _LLAMA, _llama, "KV caches"),
    _decoder("llama_8_layers", _LLAMA, partial(_llama, n_layers=8), "KV caches"),
    _decoder("llama_16_layers", _LLAMA, partial(_llama, n_layers=16), "KV caches", slow=True),
    _decoder("llama_32_layers", _LLAMA, partial(_llama, n_layers=32), "KV caches", slow=True),
    _decoder(
        "llama_dynamic",
        _LLAMA,
        _llama_dynamic,
        "KV caches written in slices of symbolic size",
        dynamic_shapes=_token_count,
    ),
    _decoder("qwen3", _LLAMA, partial(_llama, **_HF_LAYOUT), "KV caches after a normalisation"),
    _decoder(
        "qwen3_5",
        "llama.attention",
        _qwen3_5,
        "recurrent state, convolution history, KV cache",
        imports=(CUSTOM_OPS,),
    ),
    _decoder("ring_cache", "llama.attention", _ring_cache, "ring buffers with a buffer of positions"),
    _decoder(
        "attention_sink",
        "llama.source_transformation.attention_sink",
        _attention_sink,
        "positions that do not start at zero",
        initialised=_SINK_POSITIONS,
    ),
    _decoder(
        "custom_cache",
        "llama.source_transformation.custom_kv_cache",
        _custom_cache,
        "mutable custom operators, already in place",
        imports=(CUSTOM_OPS,),
    ),
    _decoder(
        "quantised_cache",
        "llama.source_transformation.custom_kv_cache",
        _quantised_cache,
        "mutable custom operators on integer caches and their scales",
        imports=(CUSTOM_OPS, QUANTIZED_OPS),
        initialised=_SCALES,
        # With names, executorch 1.5.1 gives the scales the index of a constant of the same contents.
        named=False,
    ),
    _decoder("gemma4_text", "gemma4.text_decoder", _gemma4_text, "KV caches that several layers read"),
    _decoder("gemma4_31b", "gemma4_31b.model", _gemma4_31b, "ring and flat caches side by side"),
    _decoder("muse_glimmer", "muse_glimmer.model.model", _muse_glimmer, "caches of half precision"),
    _decoder("voxtral_decoder", "voxtral_realtime.model", _voxtral_decoder, "static KV caches"),
    _decoder(
        "voxtral_encoder",
        "voxtral_realtime.model",
        _voxtral_encoder,
        "convolution history, reset at a stream's start, beside ring caches",
    ),
)
"""Models from the wheel, small ones first where they differ in size only."""
