"""GGUF files as a source of tensors: their fields as a config, and quantized blocks as numbers.

The `gguf` package reads the file and its blocks (F32, F16, BF16, Q8_0, Q4_0, Q4_K and the others that it knows). Each
tensor is converted when it is copied, so that one at a time exists as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.base.lazy import is_importable, lazy
from weft.errors import ArgumentError, FileFormatError

gguf = lazy("gguf")

# Names of architectures in GGUF files, and the `model_type` of each.
ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = re.compile(r"^blk\.(\d+)\.(.+)$")
_FACTORS = "rope_freqs.weight"


class GgufFile:
    """Tensors of a GGUF file under the names of Hugging Face's files.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        if not is_importable("gguf"):
            raise ArgumentError("A GGUF file needs the package gguf.", received=path, fix="pip install gguf")
        try:
            self.reader = gguf.GGUFReader(path)
        except (ValueError, OSError, IndexError) as error:
            raise FileFormatError(f"No GGUF file: {error}", received=path) from None
        self.path = path
        self.fields = {name: field.contents() for name, field in self.reader.fields.items()}
        self.architecture = str(self.fields.get("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            what = f"The architecture of a GGUF file must be one of {known}."
            raise ArgumentError(what, received=f"{self.architecture!r} in {path}")
        self.tensors = {self._name(tensor.name): tensor for tensor in self.reader.tensors if tensor.name != _FACTORS}
        self.factors = next((t for t in self.reader.tensors if t.name == _FACTORS), None)

    def _name(self, name: str) -> str:
        """Return the name of a tensor in Hugging Face's files."""
        stem, _, ending = name.rpartition(".")
        if match := _BLOCK.match(stem):
            own = _LAYER.get(match[2], match[2])
            if self.architecture.startswith("gemma") and self.architecture != "gemma" and match[2] == "ffn_norm":
                own = "pre_feedforward_layernorm"
            if self.architecture == "phi3" and match[2] == "ffn_up":
                own = "mlp.gate_up_proj"
            return f"model.layers.{match[1]}.{own}.{ending}"
        return f"{_OUTER.get(stem, stem)}.{ending}"

    @property
    def config(self) -> dict[str, Any]:
        """Fields of the `config.json` that the model would have."""

        def get(name: str, default: Any = None) -> Any:
            value = self.fields.get(f"{self.architecture}.{name}", default)
            if value is None:
                raise FileFormatError(
                    f"A GGUF file must have the field {self.architecture}.{name}.", received=self.path
                )
            return value

        heads = get("attention.head_count")
        raw = {
            "model_type": ARCHITECTURES[self.architecture],
            "hidden_size": get("embedding_length"),
            "intermediate_size": get("feed_forward_length"),
            "num_hidden_layers": get("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": get("attention.head_count_kv", heads),
            "head_dim": get("attention.key_length", get("embedding_length") // heads),
            "max_position_embeddings": get("context_length"),
            "rms_norm_eps": get("attention.layer_norm_rms_epsilon", 1e-6),
            "rope_theta": get("rope.freq_base", 10000.0),
            "vocab_size": self.shapes["model.embed_tokens.weight"][0],
            "tie_word_embeddings": "lm_head.weight" not in self.tensors,
            "eos_token_id": self.fields.get("tokenizer.ggml.eos_token_id"),
            "bos_token_id": self.fields.get("tokenizer.ggml.bos_token_id"),
            "sliding_window": self.fields.get(f"{self.architecture}.attention.sliding_window"),
            "final_logit_softcapping": self.fields.get(f"{self.architecture}.final_logit_softcapping"),
            "attn_logit_softcapping": self.fields.get(f"{self.architecture}.attn_logit_softcapping"),
        }
        if self.architecture.startswith("gemma"):
            raw["query_pre_attn_scalar"] = raw["head_dim"]
        if self.factors is not None:
            factors = [float(x) for x in np.asarray(self.factors.data, np.float32)]
            raw["rope_scaling"] = {
                "rope_type": "longrope",
                "short_factor": factors,
                "long_factor": factors,
                "attention_factor": 1.0,
            }
        return {name: value for name, value in raw.items() if value is not None}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each tensor."""
        return {name: tuple(int(size) for size in tensor.shape[::-1]) for name, tensor in self.tensors.items()}

    def read(self, name: str) -> np.ndarray:
        """Return a tensor as numbers."""
        tensor = self.tensors[name]
        if tensor.tensor_type.name in ("F32", "F16"):
            array = np.asarray(tensor.data)
        else:
            array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        array = array.reshape(self.shapes[name])
        if self.architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            # Rows of a head are stored in pairs of one rotation here, in halves of all rotations there.
            heads = self.fields[f"llama.attention.head_count{'_kv' if 'k_proj' in name else ''}"]
            array = array.reshape(heads, -1, 2, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)
        if self.architecture.startswith("gemma") and "norm" in name:
            array = array - np.float32(1)
        return array

    def release(self, name: str) -> None:
        """Do nothing: numbers of a tensor belong to their reader."""
