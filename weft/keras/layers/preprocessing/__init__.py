"""Layers that prepare data."""

from weft.errors import export as _export
from weft.keras.layers.preprocessing.augment import AugMix as AugMix, RandAugment as RandAugment
from weft.keras.layers.preprocessing.boxes import MaxNumBoundingBoxes as MaxNumBoundingBoxes
from weft.keras.layers.preprocessing.categories import (
    CategoryEncoding as CategoryEncoding,
    Discretization as Discretization,
    HashedCrossing as HashedCrossing,
    Hashing as Hashing,
)
from weft.keras.layers.preprocessing.colors import (
    AutoContrast as AutoContrast,
    Equalization as Equalization,
    RandomColorDegeneration as RandomColorDegeneration,
    RandomGrayscale as RandomGrayscale,
    RandomHue as RandomHue,
    RandomInvert as RandomInvert,
    RandomPosterization as RandomPosterization,
    RandomSaturation as RandomSaturation,
    RandomSharpness as RandomSharpness,
    Solarization as Solarization,
)
from weft.keras.layers.preprocessing.histograms import (
    ContrastLimitedAdaptiveHistogramEqualization as ContrastLimitedAdaptiveHistogramEqualization,
)
from weft.keras.layers.preprocessing.image import CenterCrop as CenterCrop, Resizing as Resizing
from weft.keras.layers.preprocessing.lookup import IntegerLookup as IntegerLookup, StringLookup as StringLookup
from weft.keras.layers.preprocessing.mixing import (
    CutMix as CutMix,
    MixUp as MixUp,
    Pipeline as Pipeline,
    RandomColorJitter as RandomColorJitter,
    RandomErasing as RandomErasing,
    RandomGaussianBlur as RandomGaussianBlur,
)
from weft.keras.layers.preprocessing.normalization import Normalization as Normalization, Rescaling as Rescaling
from weft.keras.layers.preprocessing.random_color import (
    RandomBrightness as RandomBrightness,
    RandomContrast as RandomContrast,
)
from weft.keras.layers.preprocessing.random_geometry import (
    RandomCrop as RandomCrop,
    RandomFlip as RandomFlip,
    RandomRotation as RandomRotation,
    RandomShear as RandomShear,
    RandomTranslation as RandomTranslation,
    RandomZoom as RandomZoom,
)
from weft.keras.layers.preprocessing.spectrogram import (
    MelSpectrogram as MelSpectrogram,
    STFTSpectrogram as STFTSpectrogram,
)
from weft.keras.layers.preprocessing.text import TextVectorization as TextVectorization
from weft.keras.layers.preprocessing.warping import (
    RandomElasticTransform as RandomElasticTransform,
    RandomPerspective as RandomPerspective,
)

_export(__name__)
