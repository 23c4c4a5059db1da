"""Seeds of random draws: a state of two integers for each object that draws."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras.core.names import auto_name, name_scope
from weft.keras.core.variable import Variable

_global: list[SeedGenerator] = []  # at most one


def make_default_seed() -> int:
    """Draw a seed for an object without one from Python's generator (see `set_random_seed`)."""
    return random.randint(1, 10**9)


class SeedGenerator:
    """A source of keys: each draw has another one.

    The state is a variable of dtype uint32, `[seed, count of draws]`, so that a layer with a generator draws anew in
    every step of a compiled loop, and a saved state goes on where it was.

    Args:
        seed: an integer; None takes one from Python's generator.
        name: the name in the path of its variable.

    Example:
        >>> from weft import keras
        >>> generator = keras.random.SeedGenerator(7)
        >>> generator.next(), generator.next()
        (Array([7, 0], dtype=uint32), Array([7, 1], dtype=uint32))
    """

    def __init__(self, seed: int | None = None, name: str | None = None) -> None:
        self.name = auto_name(type(self).__name__) if name is None else name
        self._initial_seed = seed
        if seed is None:
            seed = make_default_seed()
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool):
            raise ArgumentError("A seed must be an integer or None.", received=f"seed={seed!r}")
        with name_scope(self.name, caller=self):
            self.state = Variable(
                _key_data(int(seed)), dtype="uint32", trainable=False, autocast=False, name="seed_generator_state"
            )

    def next(self, ordered: bool = True) -> Any:
        """Return the data of the next key, uint32 of shape (2,), and advance the state.

        Args:
            ordered: count draws in the second integer. Otherwise both integers go through a permutation, which is how
                the global generator steps.
        """
        state = self.state.value
        if ordered:
            self.state.assign(state + wnp.asarray(np.array([0, 1], "uint32")))
        else:
            self.state.assign((state + np.uint32(1)) * np.uint32(5387) % np.uint32(933199))
        return state

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"seed": self._initial_seed, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SeedGenerator:
        """Construct a generator from a config of `get_config`, at its beginning."""
        return cls(**config)


def _key_data(seed: int) -> np.ndarray:
    return np.array([seed & 0xFFFFFFFF, 0], "uint32")


def global_seed_generator() -> SeedGenerator:
    """Return the generator that functions of `keras.random` use without a seed."""
    if not _global:
        _global.append(SeedGenerator())
    return _global[0]


def reset_global_seed_generator() -> None:
    """Begin the global generator anew: at its next use, from a seed that Python's generator draws."""
    _global.clear()


def draw_seed(seed: Any) -> Any:
    """Return the data of a key (uint32 of shape (2,)) for `weft.random.wrap_key_data`.

    Args:
        seed: an integer (the same key each time), a `SeedGenerator` (its next key), a key of `weft.random` or its data,
            or None (the global generator's).
    """
    if isinstance(seed, SeedGenerator):
        return seed.next()
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        return wnp.asarray(_key_data(int(seed)))
    if seed is None:
        return global_seed_generator().next(ordered=False)
    if isinstance(seed, weft.Array) and weft.dtypes.issubdtype(seed.dtype, weft.dtypes.prng_key):
        seed = weft.random.key_data(seed)
    if isinstance(seed, weft.Array) and seed.shape == (2,) and str(seed.dtype) == "uint32":
        return seed
    raise ArgumentError(
        "A seed must be an integer, a SeedGenerator, a key (or its data, uint32 of shape (2,)), or None.",
        received=f"seed={seed!r}",
    )


def set_random_seed(seed: int) -> None:
    """Seed Python's and NumPy's generators and the global one of `keras.random`.

    Layers and initializers that are constructed afterwards, without seeds of their own, are the same each time.

    Args:
        seed: a non-negative integer below 2**32.

    Example:
        >>> from weft import keras
        >>> from weft.keras.core.seeds import set_random_seed
        >>> set_random_seed(1)
        >>> first = keras.random.SeedGenerator().next()
        >>> set_random_seed(1)
        >>> bool((first == keras.random.SeedGenerator().next()).all())
        True
    """
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool):
        raise ArgumentError("A seed must be an integer.", received=f"seed={seed!r}")
    random.seed(int(seed))
    np.random.seed(int(seed))
    reset_global_seed_generator()
