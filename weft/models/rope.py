"""Frequencies of rotary embeddings, from both spellings of their fields in a `config.json`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.models.config import Fields, Rope

KINDS = ("default", "linear", "llama3", "yarn", "longrope", "su")


def read_rope(fields: Fields, head_size: int, part: str | None = None, base: float = 10000.0) -> Rope:
    """Return the rotary embedding that a config describes.

    Args:
        fields: the fields of the config.
        head_size: the size of each head.
        part: the type of layers, where each has its own embedding.
        base: the base of the frequencies where the config has none.

    Reperiods:
        A `Rope`.
    """
    settings: dict[str, Any] = dict(fields.first(("rope_parameters", "rope_scaling"), {}))
    if part is not None and isinstance(settings.get(part), dict):
        settings = dict(settings[part])
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if kind not in KINDS:
        raise ArgumentError(
            f"The type of a rotary embedding must be one of {', '.join(KINDS)}.", received=f"{kind!r} in {fields.where}"
        )
    base = float(settings.get("rope_theta") or fields.get("rope_theta", base))
    share = float(settings.get("partial_rotary_factor") or fields.get("partial_rotary_factor", 1.0))
    size = int(head_size * share)
    powers = base ** (np.arange(0, size, 2, dtype=np.float32) / size)
    plain = (1.0 / powers).astype(np.float32)
    context = fields.get("max_position_embeddings", 0)
    original = settings.get("original_max_position_embeddings") or fields.get(
        "original_max_position_embeddings", context
    )
    frequencies, factor = plain, 1.0
    if kind == "linear":
        frequencies = plain / np.float32(settings["factor"])
    elif kind == "llama3":
        frequencies = _llama(plain, settings, original)
    elif kind == "yarn":
        frequencies, factor = _yarn(plain, settings, base, size, original, context)
    elif kind in ("longrope", "su"):
        frequencies, factor = _long(powers, settings, original, context)
    return Rope(tuple(float(f) for f in np.asarray(frequencies, np.float32)), float(factor))


def _llama(plain: Any, settings: dict[str, Any], original: int) -> Any:
    """Divide low frequencies by the factor, keep high ones, and interpolate between them."""
    low, high, factor = (float(settings[name]) for name in ("low_freq_factor", "high_freq_factor", "factor"))
    periods = original * plain / (2 * math.pi)
    smooth = np.clip((periods - low) / (high - low), 0.0, 1.0)
    return (1 - smooth) * plain / factor + smooth * plain


def _yarn(plain: Any, settings: dict[str, Any], base: float, size: int, original: int, context: int) -> Any:
    """Interpolate between the frequencies and those divided by the factor, by their number of periods."""
    factor = settings.get("factor") or context / original

    def magnitude(scale: float, weight: float = 1.0) -> float:
        return 1.0 if scale <= 1 else 0.1 * weight * math.log(scale) + 1.0

    attention = settings.get("attention_factor")
    if attention is None:
        all_dims, own = settings.get("mscale_all_dim"), settings.get("mscale")
        attention = magnitude(factor, own) / magnitude(factor, all_dims) if own and all_dims else magnitude(factor)

    def place(periods: float) -> float:
        return size * math.log(original / (periods * 2 * math.pi)) / (2 * math.log(base))

    low, high = place(settings.get("beta_fast") or 32), place(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(size // 2, dtype=np.float32) - low) / (high - low or 0.001), 0, 1)
    return plain / factor * ramp + plain * (1 - ramp), attention


def _long(powers: Any, settings: dict[str, Any], original: int, context: int) -> Any:
    """Divide each frequency by its own factor; those of long texts if the context is longer than the original."""
    factor = settings.get("factor") or context / original
    attention = settings.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return 1.0 / (np.array(settings["short_factor"], np.float32) * powers), attention
