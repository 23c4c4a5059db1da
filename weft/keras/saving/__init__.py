"""Objects as plain data, and files of models."""

from weft.errors import publish as _publish
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
from weft.keras.saving.archive import load_model, load_weights, save_model, save_weights
from weft.keras.saving.editor import KerasFileEditor

_publish(__name__)
