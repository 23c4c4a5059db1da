"""Laws of all layers: jit is eager, a configuration is the layer, a spec is the result, rows of a batch are apart, and
what is not training writes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.keras as keras
import weft.numpy as wnp
from tests.keras.layer_table import INPUTS, TABLE, Row, identity

ARRAYS = {name: wnp.asarray(value) for name, value in INPUTS.items()}


def close(found: Any, expected: Any, limit: float = 2e-6) -> None:
    found, expected = weft.tree.leaves(found), weft.tree.leaves(expected)
    assert [x.shape for x in found] == [x.shape for x in expected]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=limit, atol=limit * 10)


def halves(inputs: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {name: value[start:stop] for name, value in inputs.items()}


@pytest.mark.parametrize("row", TABLE, ids=identity)
def test_laws(row: Row) -> None:
    layer = row.make(keras.layers)
    out = row.run(layer, ARRAYS)
    before = [np.asarray(v.value) for v in layer.variables]
    trainable = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    @weft.jit
    def run(trainable: Any, others: Any, inputs: Any) -> Any:
        return row.run(lambda *args, **kwargs: layer.stateless_call(trainable, others, *args, **kwargs), inputs)

    # The same in a program, for both halves of the batch: what is not training writes nothing.
    used = {name: ARRAYS[name] for name in row.inputs}
    first, state = run(trainable, others, halves(used, 0, 2))
    second, _ = run(trainable, others, halves(used, 2, 4))
    for value, unchanged in zip(state, others, strict=True):
        np.testing.assert_array_equal(value, unchanged)
    for variable, value in zip(layer.variables, before, strict=True):
        np.testing.assert_array_equal(variable.value, value)
    if "rows" in row.words or "writes" in row.words:
        close(weft.tree.map(lambda a, b: wnp.concatenate([a, b]), first, second), out)

    # The configuration is the layer.
    config = layer.get_config()
    again = type(layer).from_config(config)
    row.run(again, ARRAYS)
    again.set_weights(layer.get_weights())
    close(row.run(again, ARRAYS), out)
    assert again.get_config() == config

    # The spec is the result.
    symbols = {name: keras.KerasTensor((None, *value.shape[1:]), str(value.dtype)) for name, value in used.items()}
    if not any(mark in row.call for mark in ("mask=steps", "mask=[", "mask=longer", ":")):
        specs = weft.tree.leaves(row.run(row.make(keras.layers), symbols))
        found = [(tuple(x.shape), str(x.dtype)) for x in weft.tree.leaves(out)]
        assert [((4, *spec.shape[1:]), str(spec.dtype)) for spec in specs] == found


@pytest.mark.parametrize("row", [row for row in TABLE if {"random", "writes"} & set(row.words)], ids=identity)
def test_training(row: Row) -> None:
    """Training in a program is training outside of it, and writes the same."""
    layer = row.make(keras.layers)
    row.run(layer, ARRAYS)
    trainable, others = ([v.value for v in vs] for vs in (layer.trainable_variables, layer.non_trainable_variables))

    @weft.jit
    def run(trainable: Any, others: Any) -> Any:
        call = lambda *args, **kwargs: layer.stateless_call(trainable, others, *args, **kwargs)
        return row.run(call, ARRAYS, training=True)

    out, state = run(trainable, others)
    close(row.run(layer, ARRAYS, training=True), out)
    written = [v.value for v in layer.non_trainable_variables]
    close(written, state)
    assert any(not np.array_equal(a, b) for a, b in zip(written, others, strict=True))
    if row.layer.startswith("BatchNormalization"):
        # A frozen layer is as in inference.
        layer.trainable = False
        before = [np.asarray(v.value) for v in layer.variables]
        row.run(layer, ARRAYS, training=True)
        for variable, value in zip(layer.variables, before, strict=True):
            np.testing.assert_array_equal(variable.value, value)
