"""Architectures for images: the layers and their names are those of Keras, so that files of weights fit."""

from weft.errors import publish as _publish
from weft.keras.applications import (
    convnext as convnext,
    densenet as densenet,
    efficientnet as efficientnet,
    efficientnet_v2 as efficientnet_v2,
    imagenet_utils as imagenet_utils,
    inception_resnet_v2 as inception_resnet_v2,
    inception_v3 as inception_v3,
    mobilenet as mobilenet,
    mobilenet_v2 as mobilenet_v2,
    mobilenet_v3 as mobilenet_v3,
    nasnet as nasnet,
    resnet as resnet,
    resnet50 as resnet50,
    resnet_v2 as resnet_v2,
    vgg16 as vgg16,
    vgg19 as vgg19,
    xception as xception,
)
from weft.keras.applications.convnext import (
    ConvNeXtBase as ConvNeXtBase,
    ConvNeXtLarge as ConvNeXtLarge,
    ConvNeXtSmall as ConvNeXtSmall,
    ConvNeXtTiny as ConvNeXtTiny,
    ConvNeXtXLarge as ConvNeXtXLarge,
)
from weft.keras.applications.densenet import (
    DenseNet121 as DenseNet121,
    DenseNet169 as DenseNet169,
    DenseNet201 as DenseNet201,
)
from weft.keras.applications.efficientnet import (
    EfficientNetB0 as EfficientNetB0,
    EfficientNetB1 as EfficientNetB1,
    EfficientNetB2 as EfficientNetB2,
    EfficientNetB3 as EfficientNetB3,
    EfficientNetB4 as EfficientNetB4,
    EfficientNetB5 as EfficientNetB5,
    EfficientNetB6 as EfficientNetB6,
    EfficientNetB7 as EfficientNetB7,
)
from weft.keras.applications.efficientnet_v2 import (
    EfficientNetV2B0 as EfficientNetV2B0,
    EfficientNetV2B1 as EfficientNetV2B1,
    EfficientNetV2B2 as EfficientNetV2B2,
    EfficientNetV2B3 as EfficientNetV2B3,
    EfficientNetV2L as EfficientNetV2L,
    EfficientNetV2M as EfficientNetV2M,
    EfficientNetV2S as EfficientNetV2S,
)
from weft.keras.applications.inception_resnet_v2 import InceptionResNetV2 as InceptionResNetV2
from weft.keras.applications.inception_v3 import InceptionV3 as InceptionV3
from weft.keras.applications.mobilenet import MobileNet as MobileNet
from weft.keras.applications.mobilenet_v2 import MobileNetV2 as MobileNetV2
from weft.keras.applications.mobilenet_v3 import (
    MobileNetV3Large as MobileNetV3Large,
    MobileNetV3Small as MobileNetV3Small,
)
from weft.keras.applications.nasnet import NASNetLarge as NASNetLarge, NASNetMobile as NASNetMobile
from weft.keras.applications.resnet import ResNet50 as ResNet50, ResNet101 as ResNet101, ResNet152 as ResNet152
from weft.keras.applications.resnet_v2 import (
    ResNet50V2 as ResNet50V2,
    ResNet101V2 as ResNet101V2,
    ResNet152V2 as ResNet152V2,
)
from weft.keras.applications.vgg16 import VGG16 as VGG16
from weft.keras.applications.vgg19 import VGG19 as VGG19
from weft.keras.applications.xception import Xception as Xception

_publish(__name__)
