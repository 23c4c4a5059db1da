"""What scikit-learn has, if it is installed: base classes, and checks of arguments."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from weft.errors import NotSupportedError


def find_module(name: str) -> Any:
    """Import a module of scikit-learn, or return None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "sklearn":
            raise
        return None


def base_class(name: str) -> Any:
    """Return a base class of `sklearn.base`; without scikit-learn an empty class, so that the module can be read."""
    found = find_module("sklearn.base")
    return type(name, (), {}) if found is None else getattr(found, name)


def require(what: str) -> None:
    """Raise an error that names the wheel where scikit-learn is not installed."""
    if find_module("sklearn") is None:
        raise NotSupportedError(f"{what} needs scikit-learn, which cannot be imported.", fix="pip install scikit-learn")


def validate(estimator: Any, *args: Any, **kwargs: Any) -> Any:
    """Check data as scikit-learn's estimators do, and note the count and the names of features."""
    return find_module("sklearn.utils.validation").validate_data(estimator, *args, **kwargs)


def check_fitted(estimator: Any) -> None:
    """Raise scikit-learn's error where `fit` was not called."""
    find_module("sklearn.utils.validation").check_is_fitted(estimator, "model_")


def target_type(y: Any) -> str:
    """Return "binary", "multiclass", "continuous", ... for targets."""
    return find_module("sklearn.utils.multiclass").type_of_target(y, input_name="y", raise_unknown=True)


class ColumnTarget:
    """Targets as a matrix, and predictions in the shape that the targets had."""

    def __init__(self, y: Any) -> None:
        self.flat = np.ndim(y) == 1

    def transform(self, y: Any) -> Any:
        """Return targets as a matrix."""
        return np.reshape(y, (-1, 1)) if np.ndim(y) == 1 else y

    def inverse_transform(self, y: Any) -> Any:
        """Return predictions as a vector if the targets were one."""
        return np.squeeze(y, axis=1) if self.flat and np.ndim(y) == 2 and np.shape(y)[1] == 1 else y


class ClassTarget:
    """Classes as one-hot rows, and rows of scores as the class of the largest."""

    def __init__(self, classes: np.ndarray, flat: bool) -> None:
        self.classes = classes
        self.flat = flat

    def transform(self, y: Any) -> np.ndarray:
        """Return one-hot rows; a class that `fit` did not see is an error."""
        values = np.reshape(np.asarray(y), -1)
        index = np.searchsorted(self.classes, values).clip(max=len(self.classes) - 1)
        unknown = values[self.classes[index] != values]
        if len(unknown):
            raise ValueError(f"y must have the classes of the first fit, {self.classes}; got {np.unique(unknown)}.")
        return np.eye(len(self.classes), dtype="float32")[index]

    def inverse_transform(self, scores: Any) -> np.ndarray:
        """Return the classes with the largest scores."""
        found = self.classes[np.argmax(scores, axis=-1)]
        return found if self.flat else found[:, None]
