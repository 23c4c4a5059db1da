"""Attention layers."""

from weft.errors import export as _export
from weft.keras.layers.attention.attention import AdditiveAttention as AdditiveAttention, Attention as Attention
from weft.keras.layers.attention.grouped_query import GroupQueryAttention as GroupQueryAttention
from weft.keras.layers.attention.multi_head import MultiHeadAttention as MultiHeadAttention

_export(__name__)
