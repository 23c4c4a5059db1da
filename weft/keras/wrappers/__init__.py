"""Models as estimators of scikit-learn. See https://scikit-learn.org; it is imported when a wrapper is constructed."""

from weft.errors import publish as _publish
from weft.keras.wrappers.estimators import (
    SKLearnClassifier as SKLearnClassifier,
    SKLearnRegressor as SKLearnRegressor,
    SKLearnTransformer as SKLearnTransformer,
)

_publish(__name__)
