"""Random arrays, and the generator of seeds."""

from weft.errors import publish as _publish
from weft.keras.core.seeds import SeedGenerator
from weft.keras.ops.dispatch import register_operations as _register_operations
from weft.keras.random.draws import (
    beta,
    binomial,
    categorical,
    dropout,
    gamma,
    normal,
    randint,
    shuffle,
    truncated_normal,
    uniform,
)

__all__ = [
    "SeedGenerator",
    "beta",
    "binomial",
    "categorical",
    "dropout",
    "gamma",
    "normal",
    "randint",
    "shuffle",
    "truncated_normal",
    "uniform",
]

_publish(__name__)
_register_operations("random", *(globals()[_name] for _name in __all__))
