"""The stages of a jitted function."""

from weft.api.stages import Compiled, Lowered, Traced

__all__ = ["Compiled", "Lowered", "Traced"]
