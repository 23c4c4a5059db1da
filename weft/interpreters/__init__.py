"""Rules of primitives and traces, under the names of `jax.interpreters`."""

from weft.base.publish import publish as _publish
from weft.interpreters import ad, batching, mlir, partial_eval, pxla, xla

__all__ = ["ad", "batching", "mlir", "partial_eval", "pxla", "xla"]

_publish(__name__)
