"""Pictures of images with bounding boxes, masks and labels. Drawing needs Pillow, galleries need matplotlib."""

from weft.errors import publish as _publish
from weft.keras.visualization.drawing import (
    draw_bounding_boxes as draw_bounding_boxes,
    draw_segmentation_masks as draw_segmentation_masks,
)
from weft.keras.visualization.galleries import (
    plot_bounding_box_gallery as plot_bounding_box_gallery,
    plot_image_gallery as plot_image_gallery,
    plot_segmentation_mask_gallery as plot_segmentation_mask_gallery,
)

_publish(__name__)
