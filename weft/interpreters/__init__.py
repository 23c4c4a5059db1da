"""Rules of primitives and traces, under the names of `jax.interpreters`."""

from weft.base.publish import publish as _publish
from weft.interpreters import (
    ad as ad,
    batching as batching,
    mlir as mlir,
    partial_eval as partial_eval,
    pxla as pxla,
    xla as xla,
)

_publish(__name__)
