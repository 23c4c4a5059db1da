"""Families of decoders: how their `config.json` is read, and the names of their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import ArgumentError
from weft.models.config import Config, Fields, Kind, Tower
from weft.models.rope import read_rope

ALL = frozenset(["query", "key", "value", "output", "gate", "up", "down", "norm"])
QUERY_KEY_VALUE = frozenset(["query", "key", "value"])

LLAMA = {
    "model.embed_tokens": "tokens",
    "model.layers.*.input_layernorm": "layers.*.attention.norm",
    "model.layers.*.self_attn.q_proj": "layers.*.attention.query",
    "model.layers.*.self_attn.k_proj": "layers.*.attention.key",
    "model.layers.*.self_attn.v_proj": "layers.*.attention.value",
    "model.layers.*.self_attn.o_proj": "layers.*.attention.output",
    "model.layers.*.self_attn.q_norm": "layers.*.attention.query_norm",
    "model.layers.*.self_attn.k_norm": "layers.*.attention.key_norm",
    "model.layers.*.post_attention_layernorm": "layers.*.mlp.norm",
    "model.layers.*.mlp.gate_proj": "layers.*.mlp.gate",
    "model.layers.*.mlp.up_proj": "layers.*.mlp.up",
    "model.layers.*.mlp.down_proj": "layers.*.mlp.down",
    "model.norm": "norm",
    "lm_head": "head",
}


def vary(table: Mapping[str, str], rows: Mapping[str, str]) -> dict[str, str]:
    """Return a table with these rows in place of those that have their names or their paths."""
    paths = set()
    for path in rows.values():
        head, _, last = path.rpartition(".")
        paths |= {f"{head}.{part}".removeprefix(".") for part in last.split("+")}
    return {name: path for name, path in table.items() if name not in rows and path not in paths} | dict(rows)


EXPERTS = LLAMA | {
    "model.layers.*.mlp.gate": "layers.*.mlp.router",
    "model.layers.*.mlp.experts.*.gate_proj.weight": "~layers.*.mlp.experts.*.gate",
    "model.layers.*.mlp.experts.*.up_proj.weight": "~layers.*.mlp.experts.*.up",
    "model.layers.*.mlp.experts.*.down_proj.weight": "~layers.*.mlp.experts.*.down",
    "model.layers.*.mlp.shared_expert.gate_proj": "layers.*.mlp.shared.gate",
    "model.layers.*.mlp.shared_expert.up_proj": "layers.*.mlp.shared.up",
    "model.layers.*.mlp.shared_expert.down_proj": "layers.*.mlp.shared.down",
    "model.layers.*.mlp.shared_expert_gate": "layers.*.mlp.shared_gate",
}
GEMMA = vary(
    LLAMA,
    {
        "model.layers.*.post_attention_layernorm": "layers.*.attention.after",
        "model.layers.*.pre_feedforward_layernorm": "layers.*.mlp.norm",
        "model.layers.*.post_feedforward_layernorm": "layers.*.mlp.after",
    },
)
PHI = vary(
    LLAMA,
    {
        "model.layers.*.self_attn.dense": "layers.*.attention.output",
        "model.layers.*.self_attn.q_layernorm": "layers.*.attention.query_norm",
        "model.layers.*.self_attn.k_layernorm": "layers.*.attention.key_norm",
        "model.layers.*.mlp.fc1": "layers.*.mlp.up",
        "model.layers.*.mlp.fc2": "layers.*.mlp.down",
        "model.final_layernorm": "norm",
    },
)
PHI3 = vary(
    LLAMA,
    {
        "model.layers.*.self_attn.qkv_proj": "layers.*.attention.query+key+value",
        "model.layers.*.mlp.gate_up_proj": "layers.*.mlp.gate+up",
    },
)
GPT2 = {
    "transformer.wte": "tokens",
    "transformer.wpe": "positions",
    "transformer.h.*.ln_1": "layers.*.attention.norm",
    "transformer.h.*.attn.c_attn": "~layers.*.attention.query+key+value",
    "transformer.h.*.attn.c_proj": "~layers.*.attention.output",
    "transformer.h.*.ln_2": "layers.*.mlp.norm",
    "transformer.h.*.mlp.c_fc": "~layers.*.mlp.up",
    "transformer.h.*.mlp.c_proj": "~layers.*.mlp.down",
    "transformer.ln_f": "norm",
    "lm_head": "head",
}


def read_kinds(fields: Fields, head_size: int, experts: Mapping[int, int] | None = None) -> tuple[Kind, ...]:
    """Return the kind of each layer: its window, rotary embedding and number of experts."""
    count = fields["num_hidden_layers"]
    kinds = fields.get("layer_types") or _layer_types(fields, count)
    window = fields.get("sliding_window")
    ropes: dict[str, Any] = {}
    for name in set(kinds):
        base = 10000.0
        if fields.raw["model_type"].startswith("gemma3"):
            is_local = name == "sliding_attention"
            base = fields.get("rope_local_base_freq", 10000.0) if is_local else fields.get("rope_theta", 1e6)
            settings = fields.first(("rope_parameters",), {})
            raw = {**fields.raw, "rope_theta": base}
            if is_local and name not in settings:
                raw |= {"rope_scaling": None, "rope_parameters": None}  # older configs scale the global one only
            ropes[name] = read_rope(Fields(raw, fields.where), head_size, name, base)
        else:
            ropes[name] = read_rope(fields, head_size, name)
    if len(kinds) != count or not set(kinds) <= {"full_attention", "sliding_attention"}:
        raise ArgumentError(
            "layer_types must have full_attention or sliding_attention for each layer.", received=f"{kinds}"
        )
    return tuple(
        Kind(window if name == "sliding_attention" else None, ropes[name], (experts or {}).get(i, 0))
        for i, name in enumerate(kinds)
    )


def _layer_types(fields: Fields, count: int) -> list[str]:
    """Return the attention of each layer for configs that are older than the field."""
    family = fields.raw["model_type"]
    window = fields.get("sliding_window")
    slides = [False] * count
    if family == "gemma2":
        slides = [i % 2 == 0 for i in range(count)]
    elif family.startswith("gemma3"):
        period = fields.first(("sliding_window_pattern", "_sliding_window_pattern"), 6)
        slides = [(i + 1) % period != 0 for i in range(count)]
    elif family in ("mistral", "phi3", "mixtral"):
        slides = [window is not None] * count
    elif family.startswith("qwen") and fields.get("use_sliding_window", False) and window:
        slides = [i >= fields.get("max_window_layers", 28) for i in range(count)]
    return ["sliding_attention" if slide else "full_attention" for slide in slides]


def read_decoder(fields: Fields) -> Config:
    """Read the config of a decoder with rotary embeddings: Llama, Mistral, Qwen, Gemma, Phi."""
    family = fields.raw["model_type"]
    heads, width = fields["num_attention_heads"], fields["hidden_size"]
    size = fields.get("head_dim", width // heads)
    is_gemma, is_phi = family.startswith("gemma"), family == "phi"
    experts = _experts(fields)
    if is_phi:
        fields = Fields({"partial_rotary_factor": 0.5, **fields.raw}, fields.where)
    biases: frozenset[str] = frozenset()
    if family in ("qwen2", "qwen2_moe"):
        biases = QUERY_KEY_VALUE if fields.get("qkv_bias", True) else biases
    elif is_phi:
        biases = ALL
    elif fields.get("attention_bias", False):
        biases = QUERY_KEY_VALUE | {"output"}
    if fields.get("mlp_bias", False):
        biases |= {"gate", "up", "down"}
    tower = Tower(
        width=width,
        heads=heads,
        key_heads=fields.get("num_key_value_heads", heads),
        head_size=size,
        hidden=fields["intermediate_size"],
        kinds=read_kinds(fields, size, experts),
        norm="layer" if is_phi else "rms",
        epsilon=fields.first(("rms_norm_eps", "layer_norm_eps"), 1e-6),
        unit_offset=is_gemma,
        after_norms=family in ("gemma2", "gemma3_text"),
        parallel=is_phi,
        activation=fields.first(("hidden_activation", "hidden_act"), "gelu_pytorch_tanh" if is_gemma else "silu"),
        gated=not is_phi,
        scale=fields.get("query_pre_attn_scalar", size) ** -0.5 if is_gemma else size**-0.5,
        attention_cap=fields.get("attn_logit_softcapping") if is_gemma else None,
        biases=biases,
        query_norm=family in ("qwen3", "qwen3_moe", "gemma3_text") or fields.get("qk_layernorm", False),
        experts_per_token=fields.get("num_experts_per_tok", 0),
        expert_hidden=fields.get("moe_intermediate_size", fields["intermediate_size"]),
        shared_hidden=fields.get("shared_expert_intermediate_size", 0) if family == "qwen2_moe" else 0,
        renormalize=fields.get("norm_topk_prob", False),
        vocabulary=fields["vocab_size"],
        embedding_scale=float(width) ** 0.5 if is_gemma else 1.0,
    )
    is_tied = fields.get("tie_word_embeddings", is_gemma)
    extras: dict[str, tuple[int, ...]] = {} if is_tied else {"head.weight": (tower.vocabulary, width)}
    if is_phi:
        extras["head.bias"] = (tower.vocabulary,)
    options = {"cap": fields.get("final_logit_softcapping")} if is_gemma else {}
    return Config(
        family, "next token", {"": tower}, extras, options, fields.get("max_position_embeddings"), dict(fields.raw)
    )


def _experts(fields: Fields) -> dict[int, int]:
    """Return the number of experts of the layers that have some."""
    count = fields.first(("num_experts", "num_local_experts"), 0)
    step, plain = fields.get("decoder_sparse_step", 1), fields.get("mlp_only_layers", [])
    if not count or not fields.raw["model_type"].endswith("_moe"):
        return {}
    return {i: count for i in range(fields["num_hidden_layers"]) if i not in plain and (i + 1) % step == 0}


def read_gpt2(fields: Fields) -> Config:
    """Read the config of GPT-2."""
    width, heads = fields["n_embd"], fields["n_head"]
    if fields.get("scale_attn_by_inverse_layer_idx", False):
        raise ArgumentError("GPT-2 must have scale_attn_by_inverse_layer_idx false.", received=fields.where)
    tower = Tower(
        width=width,
        heads=heads,
        key_heads=heads,
        head_size=width // heads,
        hidden=fields.get("n_inner", 4 * width),
        kinds=(Kind(),) * fields["n_layer"],
        norm="layer",
        epsilon=fields.get("layer_norm_epsilon", 1e-5),
        activation=fields.get("activation_function", "gelu_new"),
        gated=False,
        scale=(width // heads) ** -0.5 if fields.get("scale_attn_weights", True) else 1.0,
        biases=ALL,
        vocabulary=fields["vocab_size"],
        positions=fields.first(("n_positions", "n_ctx"), 1024),
    )
    extras = {} if fields.get("tie_word_embeddings", True) else {"head.weight": (tower.vocabulary, width)}
    return Config("gpt2", "next token", {"": tower}, extras, {}, tower.positions, dict(fields.raw))


def read_gemma3(fields: Fields) -> Config:
    """Read the config of Gemma 3; of one that also reads images, the part that reads text."""
    if fields.raw["model_type"] == "gemma3_text":
        return read_decoder(fields)
    part = fields.part("text_config")
    defaults = {"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072}
    raw = {**defaults, **heads, "sliding_window": 4096, **part.raw, "model_type": "gemma3_text"}
    return read_decoder(Fields(raw, part.where))
