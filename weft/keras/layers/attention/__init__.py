"""Attention layers."""

from weft.keras.layers.attention.attention import AdditiveAttention, Attention
from weft.keras.layers.attention.grouped_query import GroupQueryAttention
from weft.keras.layers.attention.multi_head import MultiHeadAttention

__all__ = ["AdditiveAttention", "Attention", "GroupQueryAttention", "MultiHeadAttention"]
