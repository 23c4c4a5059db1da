"""Architectures for images: the layers and their names are those of Keras, so that files of weights fit."""

from weft.errors import publish as _publish
from weft.keras.applications import (
    convnext,
    densenet,
    efficientnet,
    efficientnet_v2,
    imagenet_utils,
    inception_resnet_v2,
    inception_v3,
    mobilenet,
    mobilenet_v2,
    mobilenet_v3,
    nasnet,
    resnet,
    resnet50,
    resnet_v2,
    vgg16,
    vgg19,
    xception,
)
from weft.keras.applications.convnext import ConvNeXtBase, ConvNeXtLarge, ConvNeXtSmall, ConvNeXtTiny, ConvNeXtXLarge
from weft.keras.applications.densenet import DenseNet121, DenseNet169, DenseNet201
from weft.keras.applications.efficientnet import (
    EfficientNetB0,
    EfficientNetB1,
    EfficientNetB2,
    EfficientNetB3,
    EfficientNetB4,
    EfficientNetB5,
    EfficientNetB6,
    EfficientNetB7,
)
from weft.keras.applications.efficientnet_v2 import (
    EfficientNetV2B0,
    EfficientNetV2B1,
    EfficientNetV2B2,
    EfficientNetV2B3,
    EfficientNetV2L,
    EfficientNetV2M,
    EfficientNetV2S,
)
from weft.keras.applications.inception_resnet_v2 import InceptionResNetV2
from weft.keras.applications.inception_v3 import InceptionV3
from weft.keras.applications.mobilenet import MobileNet
from weft.keras.applications.mobilenet_v2 import MobileNetV2
from weft.keras.applications.mobilenet_v3 import MobileNetV3Large, MobileNetV3Small
from weft.keras.applications.nasnet import NASNetLarge, NASNetMobile
from weft.keras.applications.resnet import ResNet50, ResNet101, ResNet152
from weft.keras.applications.resnet_v2 import ResNet50V2, ResNet101V2, ResNet152V2
from weft.keras.applications.vgg16 import VGG16
from weft.keras.applications.vgg19 import VGG19
from weft.keras.applications.xception import Xception

_publish(__name__)
