"""Operations on images."""

from weft.errors import publish as _publish
from weft.keras.ops.image.colors import (
    gaussian_blur,
    hsv_to_rgb,
    rgb_to_grayscale,
    rgb_to_hsv,
    sobel_edges,
    ssim,
)
from weft.keras.ops.image.geometry import (
    crop_images,
    extract_patches,
    extract_patches_3d,
    pad_images,
    resize,
    scale_and_translate,
)
from weft.keras.ops.image.transforms import (
    affine_transform,
    elastic_transform,
    map_coordinates,
    perspective_transform,
)

__all__ = [
    "affine_transform",
    "crop_images",
    "elastic_transform",
    "extract_patches",
    "extract_patches_3d",
    "gaussian_blur",
    "hsv_to_rgb",
    "map_coordinates",
    "pad_images",
    "perspective_transform",
    "resize",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "scale_and_translate",
    "sobel_edges",
    "ssim",
]

_publish(__name__)
