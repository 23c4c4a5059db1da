"""Families with an encoder and a decoder: T5 and Whisper."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError
from weft.models.config import Config, Fields, Kind, Tower
from weft.models.decoders import ALL

_ATTENTION = {"q": "query", "k": "key", "v": "value", "o": "output"}
T5 = {
    "shared": "tokens",
    "lm_head": "head",
    "encoder.final_layer_norm": "encoder.norm",
    "decoder.final_layer_norm": "decoder.norm",
}
for _tower, _last in (("encoder", 1), ("decoder", 2)):
    _block = f"{_tower}.block.*.layer"
    T5[f"{_tower}.block.0.layer.0.SelfAttention.relative_attention_bias"] = f"{_tower}.buckets"
    T5[f"{_block}.0.layer_norm"] = f"{_tower}.layers.*.attention.norm"
    T5 |= {f"{_block}.0.SelfAttention.{a}": f"{_tower}.layers.*.attention.{b}" for a, b in _ATTENTION.items()}
    T5[f"{_block}.{_last}.layer_norm"] = f"{_tower}.layers.*.mlp.norm"
    for _name, _part in (("wi", "up"), ("wi_0", "gate"), ("wi_1", "up"), ("wo", "down")):
        T5[f"{_block}.{_last}.DenseReluDense.{_name}"] = f"{_tower}.layers.*.mlp.{_part}"
T5["decoder.block.*.layer.1.layer_norm"] = "decoder.layers.*.cross.norm"
T5 |= {f"decoder.block.*.layer.1.EncDecAttention.{a}": f"decoder.layers.*.cross.{b}" for a, b in _ATTENTION.items()}
# Files of one kind of feed-forward layer have `wi`, those of the other `wi_1`.
T5_GATED = {name: path for name, path in T5.items() if not name.endswith(".wi")}
T5_PLAIN = {name: path for name, path in T5.items() if not name.endswith(("wi_0", "wi_1"))}

WHISPER = {
    "model.encoder.conv1": "encoder.first_convolution",
    "model.encoder.conv2": "encoder.second_convolution",
    "model.encoder.embed_positions": "encoder.positions",
    "model.encoder.layer_norm": "encoder.norm",
    "model.decoder.embed_tokens": "decoder.tokens",
    "model.decoder.embed_positions": "decoder.positions",
    "model.decoder.layer_norm": "decoder.norm",
    "proj_out": "head",
}
for _tower in ("encoder", "decoder"):
    for _outer, _part in (("self_attn", "attention"), ("encoder_attn", "cross")):
        if _part == "attention" or _tower == "decoder":
            _layer, _path = f"model.{_tower}.layers.*.{_outer}", f"{_tower}.layers.*.{_part}"
            WHISPER[f"{_layer}_layer_norm"] = f"{_path}.norm"
            WHISPER |= {f"{_layer}.{n}_proj": f"{_path}.{p}" for n, p in _ATTENTION.items() if n != "o"}
            WHISPER[f"{_layer}.out_proj"] = f"{_path}.output"
    WHISPER[f"model.{_tower}.layers.*.final_layer_norm"] = f"{_tower}.layers.*.mlp.norm"
    WHISPER[f"model.{_tower}.layers.*.fc1"] = f"{_tower}.layers.*.mlp.up"
    WHISPER[f"model.{_tower}.layers.*.fc2"] = f"{_tower}.layers.*.mlp.down"


def read_t5(fields: Fields) -> Config:
    """Read the config of T5."""
    width, heads = fields["d_model"], fields["num_heads"]
    projection = fields.get("feed_forward_proj", "relu")
    *gate, activation = projection.split("-")
    if gate not in ([], ["gated"]):
        raise ArgumentError(
            "feed_forward_proj must be an activation, with gated- before it or not.", received=projection
        )
    layers = fields["num_layers"]

    def tower(count: int, **choices: Any) -> Tower:
        return Tower(
            width=width,
            heads=heads,
            key_heads=heads,
            head_size=fields["d_kv"],
            hidden=fields["d_ff"],
            kinds=(Kind(),) * count,
            epsilon=fields.get("layer_norm_epsilon", 1e-6),
            activation="gelu_new" if projection == "gated-gelu" else activation,
            gated=bool(gate),
            buckets=fields.get("relative_attention_num_buckets", 32),
            distance=fields.get("relative_attention_max_distance", 128),
            **choices,
        )

    is_tied = fields.get("scale_decoder_outputs", fields.raw.get("tie_word_embeddings") is not False)
    extras: dict[str, tuple[int, ...]] = {"tokens.weight": (fields["vocab_size"], width)}
    options: dict[str, Any] = {
        "head_scale": width**-0.5 if is_tied else 1.0,
        "start": fields.get("decoder_start_token_id", 0),
    }
    if not is_tied:
        extras["head.weight"] = (fields["vocab_size"], width)
        options["optional"] = ("head.weight",)
    towers = {
        "encoder": tower(layers, causal=False),
        "decoder": tower(fields.get("num_decoder_layers", layers), cross=True),
    }
    return Config("t5", "sequence", towers, extras, options, None, dict(fields.raw))


def read_whisper(fields: Fields) -> Config:
    """Read the config of Whisper."""
    width = fields["d_model"]
    if fields.get("scale_embedding", False):
        raise ArgumentError("Whisper must have scale_embedding false.", received=fields.where)

    def tower(name: str, **choices: Any) -> Tower:
        heads = fields[f"{name}_attention_heads"]
        return Tower(
            width=width,
            heads=heads,
            key_heads=heads,
            head_size=width // heads,
            hidden=fields[f"{name}_ffn_dim"],
            kinds=(Kind(),) * fields[f"{name}_layers"],
            norm="layer",
            epsilon=1e-5,
            activation=fields.get("activation_function", "gelu"),
            gated=False,
            scale=(width // heads) ** -0.5,
            biases=ALL - {"key"},
            **choices,
        )

    towers = {
        "encoder": tower(
            "encoder", causal=False, bins=fields["num_mel_bins"], positions=fields.get("max_source_positions", 1500)
        ),
        "decoder": tower(
            "decoder", cross=True, vocabulary=fields["vocab_size"], positions=fields.get("max_target_positions", 448)
        ),
    }
    options = {"start": fields.get("decoder_start_token_id", 50257)}
    return Config("whisper", "sequence", towers, {}, options, towers["decoder"].positions, dict(fields.raw))
