"""Distributions beside Keras': which axes variables, outputs and batches are split over."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

os.environ["KERAS_BACKEND"] = "jax"
peer = pytest.importorskip("keras")

from weft import keras  # noqa: E402

pytestmark = pytest.mark.peer
NAMES = [f"cpu:{i}" for i in range(4)]
PATHS = ["mlp/up/kernel", "mlp/up/bias", "mlp/down/kernel", "other/scale"]
SHAPES = {"kernel": (8, 4), "bias": (4,), "scale": (3, 4, 5)}


def described(library: Any) -> dict[str, Any]:
    """Return the distributions of a library as plain data."""
    module = library.distribution
    grid = module.DeviceMesh((2, 2), ("batch", "model"), NAMES)
    line = module.DeviceMesh((4,), ("batch",), NAMES)
    layouts = module.LayoutMap(grid)
    layouts[".*up/kernel"] = (None, "model")
    layouts[".*up/bias"] = module.TensorLayout(["model"])
    layouts["mlp/down/kernel"] = module.TensorLayout(["model", None], grid)
    layouts["mlp/up/.*put"] = ("batch", "model")
    kinds = {
        "data": module.DataParallel(device_mesh=line, auto_shard_dataset=False),
        "model": module.ModelParallel(layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False),
    }
    variables = [SimpleNamespace(path=path, shape=SHAPES[path.rpartition("/")[2]]) for path in PATHS]
    for variable in variables:
        variable._layout = None  # what Keras asks first
    axes = lambda layout: None if layout is None else tuple(layout.axes)
    found: dict[str, Any] = {
        "mesh": (grid.shape, tuple(grid.axis_names), grid.devices.shape),
        "map": {path: axes(layouts[path]) for path in [*PATHS, "mlp/up/output"]},
        "keys": sorted(layouts),
        "filled in": layouts[".*up/bias"].device_mesh is grid,
    }
    for name, kind in kinds.items():
        found[name] = {
            "batch_dim_name": kind.batch_dim_name,
            "auto_shard_dataset": kind.auto_shard_dataset,
            "data": [axes(kind.get_data_layout(shape)) for shape in ((8,), (8, 3), (8, 3, 2))],
            "variables": {v.path: axes(kind.get_variable_layout(v)) for v in variables},
            "outputs": [axes(kind.get_tensor_layout(path)) for path in ("mlp/up/output", "mlp/down/output")],
        }
        with kind.scope():
            found[name]["current"] = module.distribution() is kind
    found["none"] = module.distribution() is None
    return found


def test_layouts_are_those_of_keras() -> None:
    assert described(keras) == described(peer)


@pytest.mark.parametrize("library", [keras, peer], ids=["weft", "keras"])
def test_mistakes_are_errors_in_both(library: Any) -> None:
    module = library.distribution
    mesh = module.DeviceMesh((2, 2), ("batch", "model"), NAMES)
    with pytest.raises(ValueError, match=r"axis|axes"):
        module.DeviceMesh((2, 2), ("batch",), NAMES)
    with pytest.raises(ValueError):
        module.DeviceMesh((2, 4), ("batch", "model"), NAMES)
    with pytest.raises(ValueError, match="other"):
        module.TensorLayout([None, "other"], mesh)
    layouts = module.LayoutMap(mesh)
    layouts[".*kernel"] = (None, "model")
    with pytest.raises(ValueError):
        layouts[".*kernel"] = (None, "model")
    layouts["mlp/up.*"] = (None, "model")
    with pytest.raises(ValueError, match=r"patterns|keys"):
        layouts["mlp/up/kernel"]
    with pytest.raises(ValueError):
        module.ModelParallel(layout_map=None)
