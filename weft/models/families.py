"""The table of families: for each `model_type` the reader of its config and the names of its tensors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from weft.errors import ArgumentError, FileFormatError
from weft.models import convolutions, decoders, encoders, sequences
from weft.models.config import Config, Fields


class Family(NamedTuple):
    """How a family is read: a reader of its config, its table of names, and the prefix that bare models lack."""

    read: Callable[[Fields], Config]
    names: Mapping[str, str]
    prefix: str = "model."


FAMILIES: dict[str, Family] = {
    "gpt2": Family(decoders.read_gpt2, decoders.GPT2, "transformer."),
    "llama": Family(decoders.read_decoder, decoders.LLAMA),
    "mistral": Family(decoders.read_decoder, decoders.LLAMA),
    "qwen2": Family(decoders.read_decoder, decoders.LLAMA),
    "qwen3": Family(decoders.read_decoder, decoders.LLAMA),
    "qwen2_moe": Family(decoders.read_decoder, decoders.EXPERTS),
    "qwen3_moe": Family(decoders.read_decoder, decoders.EXPERTS),
    "gemma": Family(decoders.read_decoder, decoders.LLAMA),
    "gemma2": Family(decoders.read_decoder, decoders.GEMMA),
    "gemma3_text": Family(decoders.read_gemma3, decoders.GEMMA),
    "phi": Family(decoders.read_decoder, decoders.PHI),
    "phi3": Family(decoders.read_decoder, decoders.PHI3),
    "bert": Family(encoders.read_text, encoders.BERT, "bert."),
    "roberta": Family(encoders.read_text, encoders.ROBERTA, "roberta."),
    "xlm-roberta": Family(encoders.read_text, encoders.ROBERTA, "roberta."),
    "distilbert": Family(encoders.read_text, encoders.DISTILBERT, "distilbert."),
    "vit": Family(encoders.read_vit, encoders.VIT, "vit."),
    "clip": Family(encoders.read_clip, encoders.CLIP, ""),
    "siglip": Family(encoders.read_siglip, encoders.SIGLIP, ""),
    "whisper": Family(sequences.read_whisper, sequences.WHISPER),
    "t5": Family(sequences.read_t5, sequences.T5_PLAIN, ""),
    "resnet": Family(convolutions.read_resnet, convolutions.RESNET, "resnet."),
    "convnext": Family(convolutions.read_convnext, convolutions.CONVNEXT, "convnext."),
}


def find_names(config: Config) -> Mapping[str, str]:
    """Return the names of the tensors of a model."""
    if config.family == "t5" and config.towers["encoder"].gated:
        return sequences.T5_GATED
    return FAMILIES[config.family].names


# Tensors that files may have and models do not need: tables that the config determines, and counters.
IGNORED = re.compile(r"(rotary_emb\.inv_freq|\.attn\.(masked_)?bias|position_ids|num_batches_tracked|token_type_ids)$")


def read_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> Config:
    """Read the description of a model.

    Args:
        source: a folder with a `config.json`, or its fields.

    Returns:
        A `Config`.

    >>> from weft import models
    >>> fields = {"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_head": 2, "n_layer": 3}
    >>> len(models.read_config(fields).tower.kinds)
    3
    """
    if isinstance(source, Mapping):
        return _read(dict(source), "the config")
    path = os.path.join(os.fspath(source), "config.json")
    if not os.path.isfile(path):
        raise FileFormatError(
            "A folder of a model must have a config.json.",
            received=os.fspath(source),
            fix="models.load(folder) with the folder that has config.json and *.safetensors",
        )
    return _read(read_json(path), path)


def read_json(path: str) -> dict[str, Any]:
    """Read a file with one JSON object."""
    try:
        with open(path, encoding="utf-8") as file:
            raw = json.load(file)
    except ValueError as error:
        raise FileFormatError(f"{os.path.basename(path)} must be valid JSON: {error}", received=path) from None
    if not isinstance(raw, dict):
        raise FileFormatError(f"{os.path.basename(path)} must have one JSON object.", received=path)
    return raw


def _read(raw: dict[str, Any], where: str) -> Config:
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise ArgumentError(
            f"The model_type of a config must be one of {', '.join(sorted(FAMILIES))}.",
            received=f"{family!r} in {where}",
        )
    return FAMILIES[family].read(Fields(raw, where))
