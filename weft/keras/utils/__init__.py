"""Helpers around models: data, files, images, names, and objects as plain data."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from weft.errors import publish as _publish
from weft.keras.core.config import (
    disable_interactive_logging as disable_interactive_logging,
    enable_interactive_logging as enable_interactive_logging,
    is_interactive_logging_enabled as is_interactive_logging_enabled,
    standardize_dtype as standardize_dtype,
)
from weft.keras.core.registry import (
    CustomObjectScope as CustomObjectScope,
    custom_object_scope as custom_object_scope,
    deserialize_keras_object as deserialize_keras_object,
    get_custom_objects as get_custom_objects,
    get_registered_name as get_registered_name,
    get_registered_object as get_registered_object,
    register_keras_serializable as register_keras_serializable,
    serialize_keras_object as serialize_keras_object,
)
from weft.keras.core.seeds import set_random_seed as set_random_seed
from weft.keras.core.session import clear_session as clear_session
from weft.keras.graph.tensor import is_keras_tensor as is_keras_tensor
from weft.keras.utils.arrays import (
    normalize as normalize,
    pack_x_y_sample_weight as pack_x_y_sample_weight,
    pad_sequences as pad_sequences,
    to_categorical as to_categorical,
    unpack_x_y_sample_weight as unpack_x_y_sample_weight,
)
from weft.keras.utils.config import Config as Config
from weft.keras.utils.py_dataset import PyDataset as PyDataset
from weft.keras.utils.sources import get_source_inputs as get_source_inputs

Sequence = PyDataset

if _TYPE_CHECKING:
    from weft.keras.callbacks.progress import Progbar as Progbar
    from weft.keras.models.plot import model_to_dot as model_to_dot, plot_model as plot_model
    from weft.keras.utils import bounding_boxes as bounding_boxes
    from weft.keras.utils.directories import (
        audio_dataset_from_directory as audio_dataset_from_directory,
        image_dataset_from_directory as image_dataset_from_directory,
        text_dataset_from_directory as text_dataset_from_directory,
    )
    from weft.keras.utils.feature_space import FeatureSpace as FeatureSpace
    from weft.keras.utils.files import get_file as get_file
    from weft.keras.utils.images import (
        array_to_img as array_to_img,
        img_to_array as img_to_array,
        load_img as load_img,
        save_img as save_img,
    )
    from weft.keras.utils.windows import (
        split_dataset as split_dataset,
        timeseries_dataset_from_array as timeseries_dataset_from_array,
    )

# Imported on first use: they import data loaders, network access and models.
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


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _LATER[name]:  # a submodule
        return _importlib.import_module(f"{__name__}.{name}")
    return getattr(_importlib.import_module(f"weft.keras.{_LATER[name]}"), name)


_publish(__name__, later=_LATER)
