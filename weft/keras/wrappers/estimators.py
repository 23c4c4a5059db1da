"""SKLearnClassifier, SKLearnRegressor and SKLearnTransformer: Keras models in scikit-learn's pipelines and searches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.errors import ArgumentError, WeftError
from weft.keras.models import Model, clone_model
from weft.keras.wrappers import targets
from weft.keras.wrappers.targets import ClassTarget, ColumnTarget, base_class


class ModelNotCompiledError(WeftError, RuntimeError):
    """A model that is wrapped has no loss or no optimizer."""


class RoutingError(WeftError, RuntimeError):
    """Arguments were requested while scikit-learn's metadata routing is off."""


class SKLearnModel(base_class("BaseEstimator")):  # type: ignore[misc]
    """Base class of the wrappers."""

    def __init__(
        self,
        model: Model | Callable[..., Model],
        warm_start: bool = False,
        model_kwargs: Mapping[str, Any] | None = None,
        fit_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        targets.require(type(self).__name__)
        self.model = model
        self.warm_start = warm_start
        self.model_kwargs = model_kwargs
        self.fit_kwargs = fit_kwargs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def __sklearn_clone__(self) -> Any:
        """Return an estimator with the same arguments that was not fitted; a model is copied."""
        parameters = self.get_params(deep=False)
        model = parameters.pop("model")
        copied = copy.deepcopy(model) if isinstance(model, Model) else model
        return type(self)(model=copied, **{name: copy.copy(value) for name, value in parameters.items()})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @property
    def epoch_(self) -> int:
        """The epochs of the last `fit`."""
        return len(self.history_.epoch) if hasattr(self, "history_") else 0

    def set_fit_request(self, **kwargs: Any) -> Any:
        """Ask scikit-learn's metadata routing for arguments of `fit`, such as `sample_weight=True`.

        Args:
            **kwargs: True, False, None or another name, for each argument.

        Returns:
            The estimator.
        """
        sklearn = targets.find_module("sklearn")
        if not sklearn.get_config().get("enable_metadata_routing", False):
            raise RoutingError(
                "`set_fit_request` needs metadata routing.", fix="sklearn.set_config(enable_metadata_routing=True)"
            )
        request = self._get_metadata_request()
        for name, alias in kwargs.items():
            request.fit.add_request(param=name, alias=alias)
        self._metadata_request = request
        return self

    def _new_model(self, X: Any, y: Any) -> Model:
        if self.warm_start and hasattr(self, "model_"):
            return self.model_
        if isinstance(self.model, Model):
            model = clone_model(self.model)
            if self.model.compiled and not model.compiled:
                model.compile_from_config(self.model.get_compile_config())
        elif callable(self.model):
            model = self.model(X=X, y=y, **(self.model_kwargs or {}))
        else:
            raise ArgumentError(
                "`model` must be a compiled model, or a function of X and y that returns one.",
                received=f"{type(self.model).__name__}",
            )
        if not model.compiled or not model.loss or not model.optimizer:
            raise ModelNotCompiledError(
                "The model needs a loss and an optimizer.",
                received=f"{type(model).__name__} {model.name!r}, compiled: {bool(model.compiled)}",
                fix='model.compile("adam", loss=...)',
            )
        return model

    def fit(self, X: Any, y: Any, **kwargs: Any) -> Any:
        """Train the model.

        Args:
            X: an array of shape (rows, features), or a data frame.
            y: the targets.
            **kwargs: arguments of `Model.fit`, which override `fit_kwargs`.

        Returns:
            The estimator.
        """
        X, y = targets.validate(self, X, y, multi_output=self._has_columns(y))
        y = self._encode(y)
        model = self._new_model(X, y)
        self.history_ = model.fit(X, y, **{**(self.fit_kwargs or {}), **kwargs})
        self.model_ = model
        return self

    def _has_columns(self, y: Any) -> bool:
        """Return whether targets are several for each row, which scikit-learn checks in another way."""
        shape = np.asarray(y).shape
        return len(shape) > 1 and shape[1] > 1

    def _encode(self, y: Any) -> Any:
        targets.target_type(y)
        self._target: Any = ColumnTarget(y)
        return self._target.transform(y)

    def _outputs(self, X: Any) -> Any:
        targets.check_fitted(self)
        return self.model_.predict(targets.validate(self, X, reset=False), verbose=0)

    def predict(self, X: Any) -> Any:
        """Predict targets.

        Args:
            X: an array of shape (rows, features), or a data frame.

        Returns:
            Targets in the shape that those of `fit` had.
        """
        return self._target.inverse_transform(self._outputs(X)) if hasattr(self, "_target") else self._outputs(X)


class SKLearnClassifier(base_class("ClassifierMixin"), SKLearnModel):  # type: ignore[misc]
    """A model as a classifier of scikit-learn: targets are classes, which the model sees as one-hot rows.

    Args:
        model: a compiled model, which `fit` copies; or a function `(X, y, **model_kwargs)` that returns one, with X and
            y as `Model.fit` gets them.
        warm_start: whether a second `fit` goes on with the model of the first.
        model_kwargs: further arguments of the function.
        fit_kwargs: arguments of `Model.fit`, such as {"epochs": 10, "verbose": 0}.

    Example:
        >>> import numpy as np
        >>> from weft import keras
        >>> def make(X, y):
        ...     model = keras.Sequential([keras.Input(X.shape[1:]), keras.layers.Dense(y.shape[1], "softmax")])
        ...     model.compile("sgd", "categorical_crossentropy")
        ...     return model
        >>> estimator = keras.wrappers.SKLearnClassifier(make, fit_kwargs={"verbose": 0})
        >>> estimator.fit(np.eye(4), ["a", "b", "a", "b"]).predict(np.eye(4)).shape
        (4,)
    """

    def _has_columns(self, y: Any) -> bool:
        return False

    def _encode(self, y: Any) -> Any:
        kind = targets.target_type(y)
        if kind not in ("binary", "multiclass"):
            raise ValueError(f"Only binary and multiclass targets can be classified. Unknown label type: {kind}")
        if not (self.warm_start and hasattr(self, "model_")):
            classes = np.unique(y)
            if len(classes) == 1:
                raise ValueError("Classifier can't train when only one class is present; y needs at least two.")
            self.classes_ = classes
            self._target = ClassTarget(classes, np.ndim(y) == 1)
        return self._target.transform(y)

    def decision_function(self, X: Any) -> Any:
        """Return what the model returns: a score, or a probability, for each class.

        Args:
            X: an array of shape (rows, features), or a data frame.
        """
        return self._outputs(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


class SKLearnRegressor(base_class("RegressorMixin"), SKLearnModel):  # type: ignore[misc]
    """A model as a regressor of scikit-learn.

    Args:
        model: a compiled model, which `fit` copies; or a function `(X, y, **model_kwargs)` that returns one.
        warm_start: whether a second `fit` goes on with the model of the first.
        model_kwargs: further arguments of the function.
        fit_kwargs: arguments of `Model.fit`, such as {"epochs": 10, "verbose": 0}.

    Example:
        >>> import numpy as np
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> estimator = keras.wrappers.SKLearnRegressor(model, fit_kwargs={"verbose": 0})
        >>> estimator.fit(np.ones((4, 2)), np.ones(4)).predict(np.ones((3, 2))).shape
        (3,)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class SKLearnTransformer(base_class("TransformerMixin"), SKLearnModel):  # type: ignore[misc]
    """A model as a transformer of scikit-learn: `transform` returns its outputs.

    Args:
        model: a compiled model, which `fit` copies; or a function `(X, y, **model_kwargs)` that returns one.
        warm_start: whether a second `fit` goes on with the model of the first.
        model_kwargs: further arguments of the function.
        fit_kwargs: arguments of `Model.fit`, such as {"epochs": 10, "verbose": 0}.
    """

    def transform(self, X: Any) -> Any:
        """Return the outputs of the model.

        Args:
            X: an array of shape (rows, features), or a data frame.
        """
        return self._outputs(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
