"""Arrays in few bits beside Keras'."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

os.environ["KERAS_BACKEND"] = "jax"
peer = pytest.importorskip("keras")

from weft import keras  # noqa: E402

pytestmark = pytest.mark.peer
RANDOM = np.random.default_rng(0)
FLOATS = RANDOM.normal(size=(5, 4)).astype("float32")
NIBBLES = RANDOM.integers(-8, 8, (5, 3)).astype("int8")
CASES: dict[str, Any] = {
    "last axis": lambda q: q.abs_max_quantize(FLOATS, -1),
    "axes": lambda q: q.AbsMaxQuantizer(axis=(0, 1), value_range=(-7, 7))(FLOATS),
    "scale": lambda q: q.compute_float8_scale(np.float32([3, 0, np.inf]), np.float32([1, 2, 3]), np.float32(448), 1),
    "history": lambda q: q.compute_float8_amax_history(FLOATS, np.float32([3, 2, 1])),
    "floats": lambda q: q.quantize_and_dequantize(FLOATS * 300, np.float32(0.5), "float8_e4m3fn", "float32"),
    "packed": lambda q: q.pack_int4(NIBBLES)[0],
    "packed rows": lambda q: q.pack_int4(NIBBLES, axis=1)[0],
    "unsigned": lambda q: q.pack_int4((NIBBLES & 15).astype("uint8"), dtype="uint8")[0],
    "unpacked": lambda q: q.unpack_int4(q.pack_int4(NIBBLES, axis=-1)[0], 3, axis=-1),
    "config": lambda q: list(q.get(q.serialize(q.AbsMaxQuantizer(axis=-1))).value_range),
}


@pytest.mark.parametrize("name", CASES)
def test_quantizers(name: str) -> None:
    theirs, ours = CASES[name](peer.quantizers), CASES[name](keras.quantizers)
    for one, other in zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]:
        np.testing.assert_allclose(np.asarray(one), np.array(other), rtol=1e-6)
        assert str(np.asarray(one).dtype) == str(np.array(other).dtype)
