"""Random arrays, and the generator of seeds."""

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.core.seeds import SeedGenerator as SeedGenerator
from weft.keras.ops.dispatch import register_operations as _register_operations
from weft.keras.random.draws import (
    beta as beta,
    binomial as binomial,
    categorical as categorical,
    dropout as dropout,
    gamma as gamma,
    normal as normal,
    randint as randint,
    shuffle as shuffle,
    truncated_normal as truncated_normal,
    uniform as uniform,
)

_publish(__name__)
_register_operations("random", *_registry.functions_and_classes(__name__))
