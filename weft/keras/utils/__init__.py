"""Helpers around models: data, files, images, names, and objects as plain data."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from weft.errors import publish as _publish
from weft.keras.core.config import (
    disable_interactive_logging,
    enable_interactive_logging,
    is_interactive_logging_enabled,
    standardize_dtype,
)
from weft.keras.core.registry import (
    CustomObjectScope,
    custom_object_scope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)
from weft.keras.core.seeds import set_random_seed
from weft.keras.core.session import clear_session
from weft.keras.graph.tensor import is_keras_tensor
from weft.keras.utils.arrays import (
    normalize,
    pack_x_y_sample_weight,
    pad_sequences,
    to_categorical,
    unpack_x_y_sample_weight,
)
from weft.keras.utils.config import Config
from weft.keras.utils.py_dataset import PyDataset
from weft.keras.utils.sources import get_source_inputs

Sequence = PyDataset

if _TYPE_CHECKING:
    from weft.keras.callbacks.progress import Progbar
    from weft.keras.models.plot import model_to_dot, plot_model
    from weft.keras.utils import bounding_boxes
    from weft.keras.utils.directories import (
        audio_dataset_from_directory,
        image_dataset_from_directory,
        text_dataset_from_directory,
    )
    from weft.keras.utils.feature_space import FeatureSpace
    from weft.keras.utils.files import get_file
    from weft.keras.utils.images import array_to_img, img_to_array, load_img, save_img
    from weft.keras.utils.windows import split_dataset, timeseries_dataset_from_array

# Imported when somebody asks for them: with them come loaders of data, the network, and models.
_LATER = {
    "bounding_boxes": "",
    "FeatureSpace": "utils.feature_space",
    "Progbar": "callbacks.progress",
    "array_to_img": "utils.images",
    "audio_dataset_from_directory": "utils.directories",
    "get_file": "utils.files",
    "image_dataset_from_directory": "utils.directories",
    "img_to_array": "utils.images",
    "load_img": "utils.images",
    "model_to_dot": "models.plot",
    "plot_model": "models.plot",
    "save_img": "utils.images",
    "split_dataset": "utils.windows",
    "text_dataset_from_directory": "utils.directories",
    "timeseries_dataset_from_array": "utils.windows",
}

__all__ = [
    "Config",
    "CustomObjectScope",
    "FeatureSpace",
    "Progbar",
    "PyDataset",
    "Sequence",
    "array_to_img",
    "audio_dataset_from_directory",
    "bounding_boxes",
    "clear_session",
    "custom_object_scope",
    "deserialize_keras_object",
    "disable_interactive_logging",
    "enable_interactive_logging",
    "get_custom_objects",
    "get_file",
    "get_registered_name",
    "get_registered_object",
    "get_source_inputs",
    "image_dataset_from_directory",
    "img_to_array",
    "is_interactive_logging_enabled",
    "is_keras_tensor",
    "load_img",
    "model_to_dot",
    "normalize",
    "pack_x_y_sample_weight",
    "pad_sequences",
    "plot_model",
    "register_keras_serializable",
    "save_img",
    "serialize_keras_object",
    "set_random_seed",
    "split_dataset",
    "standardize_dtype",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
    "to_categorical",
    "unpack_x_y_sample_weight",
]


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _LATER[name]:  # a submodule
        return _importlib.import_module(f"{__name__}.{name}")
    return getattr(_importlib.import_module(f"weft.keras.{_LATER[name]}"), name)


_publish(__name__, later=_LATER)
