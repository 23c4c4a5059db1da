"""Sequences of several lengths."""

from weft.errors import publish as _publish
from weft.keras.utils.arrays import pad_sequences as pad_sequences

_publish(__name__)
