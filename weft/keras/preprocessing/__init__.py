"""Older names of what `weft.keras.utils` has."""

from weft.errors import publish as _publish
from weft.keras.preprocessing import image as image, sequence as sequence
from weft.keras.utils.directories import (
    image_dataset_from_directory as image_dataset_from_directory,
    text_dataset_from_directory as text_dataset_from_directory,
)
from weft.keras.utils.windows import timeseries_dataset_from_array as timeseries_dataset_from_array

_publish(__name__)
