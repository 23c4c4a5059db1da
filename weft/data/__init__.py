"""Data for training: from sources of samples to batches on devices, in an order that can be continued exactly."""

from weft.data.adapt import adapt as adapt
from weft.data.adapter import Adapter as Adapter, Batches as Batches
from weft.data.ahead import Ahead as Ahead
from weft.data.batching import Buckets as Buckets
from weft.data.loader import Loader as Loader
from weft.data.order import Order as Order, sample_generator as sample_generator
from weft.data.source import ArraySource as ArraySource
from weft.data.spec import ArraySpec as ArraySpec
from weft.data.transforms import Filter as Filter, Map as Map, RandomMap as RandomMap
from weft.data.workers import WorkerFailureError as WorkerFailureError
from weft.errors import publish as _publish

_publish(__name__)
