"""Models: layers that train, save and print themselves."""

from weft.errors import publish as _publish
from weft.keras.models.clone import clone_model as clone_model, model_from_json as model_from_json
from weft.keras.models.functional import Functional as Functional
from weft.keras.models.model import Model as Model
from weft.keras.models.sequential import Sequential as Sequential
from weft.keras.saving.archive import load_model as load_model, save_model as save_model

_publish(__name__)
