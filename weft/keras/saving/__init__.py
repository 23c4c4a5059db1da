"""Objects as plain data, and files of models."""

from weft.errors import publish as _publish
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
from weft.keras.saving.archive import (
    load_model as load_model,
    load_weights as load_weights,
    save_model as save_model,
    save_weights as save_weights,
)
from weft.keras.saving.editor import KerasFileEditor as KerasFileEditor

_publish(__name__)
