"""Images as arrays, and files of images."""

from weft.errors import publish as _publish
from weft.keras.utils.images import (
    array_to_img as array_to_img,
    img_to_array as img_to_array,
    load_img as load_img,
    save_img as save_img,
    smart_resize as smart_resize,
)

_publish(__name__)
