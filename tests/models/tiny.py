"""Tiny models of every family: the fields of their configs, and random weights that exercise every parameter."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import models

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": 96,
        "n_positions": 256,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "eos_token_id": 1,
        "bos_token_id": 2,
    },
    "llama": {"model_type": "llama", **SHAPE, "rope_parameters": LLAMA3},
    "llama-biases": {"model_type": "llama", **SHAPE, "attention_bias": True, "mlp_bias": True, "rope_parameters": YARN},
    "mistral": {"model_type": "mistral", **SHAPE, "sliding_window": 8},
    "qwen2": {
        "model_type": "qwen2",
        **SHAPE,
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 2,
        "tie_word_embeddings": True,
    },
    "qwen3": {"model_type": "qwen3", **SHAPE, "head_dim": 8, "tie_word_embeddings": True},
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        **SHAPE,
        **EXPERTS,
        "shared_expert_intermediate_size": 24,
        "mlp_only_layers": [1],
    },
    "qwen3_moe": {"model_type": "qwen3_moe", **SHAPE, **EXPERTS, "head_dim": 8, "norm_topk_prob": True},
    "gemma": {"model_type": "gemma", **SHAPE, "head_dim": 8},
    "gemma2": {
        "model_type": "gemma2",
        **SHAPE,
        "head_dim": 8,
        "sliding_window": 8,
        "query_pre_attn_scalar": 12,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 6.0,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        **SHAPE,
        "num_hidden_layers": 8,
        "head_dim": 8,
        "sliding_window": 8,
        "query_pre_attn_scalar": 12,
    },
    "phi": {"model_type": "phi", **SHAPE, "hidden_act": "gelu_new"},
    "phi3": {"model_type": "phi3", **SHAPE},
}


def make(fields: dict[str, Any], seed: int = 0, spread: float = 0.2) -> models.Model:
    """Return a model whose norms and biases are random too."""
    config = models.read_config(fields)
    numbers = np.random.default_rng(seed)
    params = weft.tree.map(
        lambda x: (np.asarray(x) + spread * numbers.normal(size=x.shape)).astype(np.float32),
        models.init(config, weft.random.key(seed)),
    )
    return models.Model(config, weft.tree.map(weft.numpy.asarray, params))


def tokens(*shape: int, seed: int = 0) -> np.ndarray:
    """Return random tokens."""
    return np.random.default_rng(seed).integers(3, 96, shape).astype(np.int32)
