"""Images as arrays, and files of images."""

from weft.errors import publish as _publish
from weft.keras.utils.images import array_to_img, img_to_array, load_img, save_img, smart_resize

__all__ = ["array_to_img", "img_to_array", "load_img", "save_img", "smart_resize"]

_publish(__name__)
