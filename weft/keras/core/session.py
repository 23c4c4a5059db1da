"""What `clear_session` begins anew."""

from __future__ import annotations

import gc

from weft.keras.core.layouts import set_current_distribution
from weft.keras.core.names import reset_names
from weft.keras.core.policy import set_dtype_policy
from weft.keras.core.seeds import reset_global_seed_generator


def clear_session(free_memory: bool = True) -> None:
    """Begin anew: automatic names count from the beginning, the global seed generator, dtype policy and
    distribution are forgotten.

    Args:
        free_memory: also collect garbage, so that models nobody uses any more free their arrays now.

    Example:
        >>> from weft import keras
        >>> keras.backend.clear_session()
    """
    reset_names()
    reset_global_seed_generator()
    set_dtype_policy(None)
    set_current_distribution(None)
    if free_memory:
        gc.collect()
