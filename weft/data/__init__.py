"""Data for training: from sources of samples to batches on devices, in an order that can be continued exactly."""

from weft.data.adapt import adapt
from weft.data.adapter import Adapter, Batches
from weft.data.ahead import Ahead
from weft.data.batching import Buckets
from weft.data.loader import Loader
from weft.data.order import Order, sample_generator
from weft.data.source import ArraySource
from weft.data.spec import ArraySpec
from weft.data.transforms import Filter, Map, RandomMap
from weft.data.workers import WorkerFailureError
from weft.errors import publish as _publish

__all__ = [
    "Adapter",
    "Ahead",
    "ArraySource",
    "ArraySpec",
    "Batches",
    "Buckets",
    "Filter",
    "Loader",
    "Map",
    "Order",
    "RandomMap",
    "WorkerFailureError",
    "adapt",
    "sample_generator",
]

_publish(__name__)
