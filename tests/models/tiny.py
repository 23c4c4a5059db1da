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


TEXT = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
DISTIL = {
    "model_type": "distilbert",
    "vocab_size": 96,
    "dim": 32,
    "hidden_dim": 48,
    "n_layers": 2,
    "n_heads": 4,
    "max_position_embeddings": 64,
}
LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
PICTURES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 8,
}
SHORT_TEXT = {**TEXT, "num_hidden_layers": 2, "max_position_embeddings": 16}
T5 = {"model_type": "t5", "vocab_size": 96, "d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_heads": 4}
RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [16, 24], "depths": [1, 2], **LABELS}

ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", **TEXT, "architectures": ["BertModel"]},
    "bert-masked": {"model_type": "bert", **TEXT, "architectures": ["BertForMaskedLM"]},
    "bert-labels": {"model_type": "bert", **TEXT, **LABELS, "architectures": ["BertForSequenceClassification"]},
    "bert-tokens": {"model_type": "bert", **TEXT, **LABELS, "architectures": ["BertForTokenClassification"]},
    "roberta": {"model_type": "roberta", **TEXT, "architectures": ["RobertaModel"]},
    "roberta-masked": {"model_type": "roberta", **TEXT, "architectures": ["RobertaForMaskedLM"]},
    "roberta-labels": {
        "model_type": "roberta",
        **TEXT,
        **LABELS,
        "architectures": ["RobertaForSequenceClassification"],
    },
    "distilbert": {**DISTIL, "architectures": ["DistilBertModel"]},
    "distilbert-masked": {**DISTIL, "architectures": ["DistilBertForMaskedLM"]},
    "distilbert-labels": {**DISTIL, **LABELS, "architectures": ["DistilBertForSequenceClassification"]},
}
IMAGES: dict[str, dict[str, Any]] = {
    "vit": {"model_type": "vit", **PICTURES, "architectures": ["ViTModel"]},
    "vit-labels": {"model_type": "vit", **PICTURES, **LABELS, "architectures": ["ViTForImageClassification"]},
    "resnet": {**RESNET, "architectures": ["ResNetForImageClassification"]},
    "resnet-basic": {
        **RESNET,
        "layer_type": "basic",
        "downsample_in_first_stage": True,
        "architectures": ["ResNetForImageClassification"],
    },
    "resnet-features": {**RESNET, "downsample_in_bottleneck": True, "architectures": ["ResNetModel"]},
    "convnext": {
        "model_type": "convnext",
        "hidden_sizes": [8, 16],
        "depths": [1, 2],
        "num_stages": 2,
        **LABELS,
        "architectures": ["ConvNextForImageClassification"],
    },
}
PAIRS: dict[str, dict[str, Any]] = {
    "clip": {
        "model_type": "clip",
        "projection_dim": 24,
        "text_config": {**SHORT_TEXT, "eos_token_id": 1, "bos_token_id": 2, "pad_token_id": 0},
        "vision_config": PICTURES,
        "architectures": ["CLIPModel"],
    },
    "siglip": {
        "model_type": "siglip",
        "text_config": {**SHORT_TEXT, "eos_token_id": 1, "bos_token_id": 2, "pad_token_id": 0},
        "vision_config": PICTURES,
        "architectures": ["SiglipModel"],
    },
}
SEQUENCES: dict[str, dict[str, Any]] = {
    "t5": {**T5, "decoder_start_token_id": 0, "architectures": ["T5ForConditionalGeneration"]},
    "t5-gated": {
        **T5,
        "decoder_start_token_id": 0,
        "feed_forward_proj": "gated-gelu",
        "architectures": ["T5ForConditionalGeneration"],
    },
    "whisper": {
        "model_type": "whisper",
        "vocab_size": 96,
        "num_mel_bins": 16,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 48,
        "encoder_ffn_dim": 48,
        "d_model": 32,
        "max_source_positions": 30,
        "max_target_positions": 90,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "decoder_start_token_id": 3,
        "begin_suppress_tokens": None,
        "architectures": ["WhisperForConditionalGeneration"],
    },
}
ALL = {**DECODERS, **ENCODERS, **IMAGES, **PAIRS, **SEQUENCES}


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


def images(batch: int, size: int = 16) -> np.ndarray:
    """Return random images."""
    return np.random.default_rng(0).normal(size=(batch, 3, size, size)).astype(np.float32)


def source(fields: dict[str, Any]) -> np.ndarray:
    """Return the input of the encoder of a model with two towers."""
    if fields["model_type"] == "whisper":
        return np.random.default_rng(0).normal(size=(2, 16, 60)).astype(np.float32)
    return tokens(2, 13)
