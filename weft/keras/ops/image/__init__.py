"""Operations on images."""

from weft.errors import publish as _publish
from weft.keras.ops.image.colors import (
    gaussian_blur as gaussian_blur,
    hsv_to_rgb as hsv_to_rgb,
    rgb_to_grayscale as rgb_to_grayscale,
    rgb_to_hsv as rgb_to_hsv,
    sobel_edges as sobel_edges,
    ssim as ssim,
)
from weft.keras.ops.image.geometry import (
    crop_images as crop_images,
    extract_patches as extract_patches,
    extract_patches_3d as extract_patches_3d,
    pad_images as pad_images,
    resize as resize,
    scale_and_translate as scale_and_translate,
)
from weft.keras.ops.image.transforms import (
    affine_transform as affine_transform,
    elastic_transform as elastic_transform,
    map_coordinates as map_coordinates,
    perspective_transform as perspective_transform,
)

_publish(__name__)
