"""tf.data as a source of batches."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from weft.data import ArraySpec, adapt


def firsts(batches: Any) -> list[float]:
    return [float(np.asarray(x).flat[0]) for x, _, _ in batches]


def resumed(make: Any, taken: int = 2) -> None:
    """Resuming delivers the batches that follow, also of another object and through JSON."""
    whole = firsts(make().batches())
    batches = make().batches()
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(batches.state()))
    assert firsts(make().resume(state)) == firsts(batches) == whole[taken:]


def test_tf_data() -> None:
    make = lambda: tf.data.Dataset.from_tensor_slices((np.arange(10.0, dtype=np.float32), np.arange(10))).batch(4)
    adapter = adapt(make())
    assert (adapter.kind, adapter.size) == ("tf.data.Dataset", 3)
    assert adapter.spec == (ArraySpec((None,), np.float32), ArraySpec((None,), np.int64), None)
    assert firsts(adapter.batches()) == firsts(adapter.batches(1)) == [0.0, 4.0, 8.0]
    assert adapt(make().repeat()).size is None
    resumed(lambda: adapt(make()))
