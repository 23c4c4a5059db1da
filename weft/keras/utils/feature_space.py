"""`FeatureSpace`: columns of a table, each with a layer that prepares it, as one vector or as a dict of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras import layers
from weft.keras.core import registry
from weft.keras.core.names import auto_name
from weft.keras.graph.tensor import KerasTensor
from weft.keras.saving.archive import save_model


@dataclass
class Feature:
    """A column: its dtype, the layer that prepares it, and what becomes of the result: "int", "one_hot" or "float"."""

    dtype: str
    preprocessor: Any
    output_mode: str

    def __post_init__(self) -> None:
        if self.output_mode not in ("int", "one_hot", "float"):
            modes = "'int', 'one_hot' or 'float'"
            raise ArgumentError(f"The output_mode of a feature must be {modes}.", received=self.output_mode)
        if isinstance(self.preprocessor, dict):
            self.preprocessor = registry.deserialize_keras_object(self.preprocessor)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        layer = registry.serialize_keras_object(self.preprocessor)
        return {"dtype": self.dtype, "preprocessor": layer, "output_mode": self.output_mode}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Feature:
        """Construct a feature from a config of `get_config`."""
        return cls(**config)


@dataclass
class Cross:
    """Columns whose values are hashed together: their names, into how many bins, and "int" or "one_hot"."""

    feature_names: Sequence[str]
    crossing_dim: int
    output_mode: str = "one_hot"

    def __post_init__(self) -> None:
        self.feature_names = tuple(self.feature_names)
        if self.output_mode not in ("int", "one_hot"):
            raise ArgumentError("The output_mode of a cross must be 'int' or 'one_hot'.", received=self.output_mode)

    @property
    def name(self) -> str:
        """The names of the columns, with `_X_` between them."""
        return "_X_".join(self.feature_names)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        names = list(self.feature_names)
        return {"feature_names": names, "crossing_dim": self.crossing_dim, "output_mode": self.output_mode}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Cross:
        """Construct a cross from a config of `get_config`."""
        return cls(**config)


class FeatureSpace(layers.Layer):
    """Columns of a table as numbers: each is prepared by a layer of its own, and adapted to data by one call.

    Args:
        features: for each column a feature (`FeatureSpace.float_normalized()`), or the name of such a method.
        output_mode: "concat": one vector, of the columns in the order of their names, then of crosses in the order of
            theirs; "dict": a tensor for each.
        crosses: tuples of names of columns that are hashed together, or `FeatureSpace.cross(...)`.
        crossing_dim: into how many bins, for tuples.
        hashing_dim: bins of "string_hashed" and "integer_hashed".
        num_discretization_bins: bins of "float_discretized".
        name: its name.

    Example:
        >>> import numpy as np
        >>> from weft import keras
        >>> data = {"age": np.array([20.0, 40.0]), "city": np.array(["Rome", "Oslo"])}
        >>> space = keras.utils.FeatureSpace({"age": "float_normalized", "city": "string_categorical"})
        >>> space.adapt(data)
        >>> print(space(data))
        [[-1.  0.  1.  0.]
         [ 1.  0.  0.  1.]]
    """

    def __init__(
        self,
        features: Mapping[str, Any],
        output_mode: str = "concat",
        crosses: Sequence[Any] | None = None,
        crossing_dim: int = 32,
        hashing_dim: int = 32,
        num_discretization_bins: int = 32,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if not features:
            raise ArgumentError(
                "A FeatureSpace must have at least one feature.", fix='FeatureSpace({"age": "float_normalized"})'
            )
        if output_mode not in ("concat", "dict"):
            raise ArgumentError("output_mode must be 'concat' or 'dict'.", received=repr(output_mode))
        self.crossing_dim, self.hashing_dim = crossing_dim, hashing_dim
        self.num_discretization_bins, self.output_mode = num_discretization_bins, output_mode
        self.features = {column: self._make_feature(column, value) for column, value in features.items()}
        self.crosses = [self._make_cross(value) for value in crosses or ()]
        self.preprocessors = {column: feature.preprocessor for column, feature in self.features.items()}
        self.crossers = {
            cross.name: layers.HashedCrossing(cross.crossing_dim, name=cross.name) for cross in self.crosses
        }
        self._is_adapted = not self._adaptable()

    # -------------------------------------------------------------------------------------------------------- features

    @classmethod
    def cross(cls, feature_names: Sequence[str], crossing_dim: int, output_mode: str = "one_hot") -> Cross:
        """Hash columns together into `crossing_dim` bins."""
        return Cross(feature_names, crossing_dim, output_mode)

    @classmethod
    def feature(cls, dtype: str, preprocessor: Any, output_mode: str) -> Feature:
        """Return a column of a dtype with a custom preprocessing layer."""
        return Feature(dtype, preprocessor, output_mode)

    @classmethod
    def float(cls, name: str | None = None) -> Feature:
        """Return a feature of numbers, unchanged."""
        return Feature("float32", layers.Identity(name=_name(name, "float")), "float")

    @classmethod
    def float_rescaled(cls, scale: Any = 1.0, offset: Any = 0.0, name: str | None = None) -> Feature:
        """Return a feature of numbers times `scale` plus `offset`."""
        return Feature("float32", layers.Rescaling(scale, offset, name=_name(name, "float_rescaled")), "float")

    @classmethod
    def float_normalized(cls, name: str | None = None) -> Feature:
        """Return a feature of numbers minus their mean, divided by their deviation."""
        return Feature("float32", layers.Normalization(axis=-1, name=_name(name, "float_normalized")), "float")

    @classmethod
    def float_discretized(
        cls,
        num_bins: int | None = None,
        bin_boundaries: Any = None,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Return a feature of numbers as one of `num_bins` equally filled ranges, or of those between boundaries."""
        layer = layers.Discretization(
            bin_boundaries=bin_boundaries, num_bins=num_bins, name=_name(name, "float_discretized")
        )
        return Feature("float32", layer, output_mode)

    @classmethod
    def integer_categorical(
        cls,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Return a feature of integers as indices of those that `adapt` has seen."""
        named = _name(name, "integer_categorical")
        return Feature("int32", layers.IntegerLookup(max_tokens, num_oov_indices, name=named), output_mode)

    @classmethod
    def string_categorical(
        cls,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Return a feature of strings as indices of those that `adapt` has seen."""
        named = _name(name, "string_categorical")
        return Feature("string", layers.StringLookup(max_tokens, num_oov_indices, name=named), output_mode)

    @classmethod
    def string_hashed(cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None) -> Feature:
        """Return a feature of strings as one of `num_bins` integers."""
        return Feature("string", layers.Hashing(num_bins, name=_name(name, "string_hashed")), output_mode)

    @classmethod
    def integer_hashed(cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None) -> Feature:
        """Return a feature of integers as one of `num_bins` integers."""
        return Feature("int32", layers.Hashing(num_bins, name=_name(name, "integer_hashed")), output_mode)

    def _make_feature(self, column: str, value: Any) -> Feature:
        if isinstance(value, Feature):
            return value
        if isinstance(value, dict):
            found: Feature = registry.deserialize_keras_object(value)
            return found
        # The methods by name, and the sizes that this space has for them.
        sizes: dict[str, tuple[int, ...]] = {
            "float": (),
            "float_rescaled": (),
            "float_normalized": (),
            "float_discretized": (self.num_discretization_bins,),
            "integer_categorical": (),
            "string_categorical": (),
            "integer_hashed": (self.hashing_dim,),
            "string_hashed": (self.hashing_dim,),
        }
        if value not in sizes:
            raise ArgumentError(
                f"The column {column!r} has no such feature.", received=repr(value), fix=f"one of {', '.join(sizes)}"
            )
        feature: Feature = getattr(self, value)(*sizes[value], name=column)
        return feature

    def _make_cross(self, value: Any) -> Cross:
        if isinstance(value, dict):
            value = registry.deserialize_keras_object(value)
        found = value if isinstance(value, Cross) else Cross(value, self.crossing_dim)
        unknown = [name for name in found.feature_names if name not in self.features]
        if unknown:
            raise ArgumentError(
                f"There are no columns {', '.join(unknown)} to cross.", received=f"features {', '.join(self.features)}"
            )
        return found

    # ----------------------------------------------------------------------------------------------------------- adapt

    def _adaptable(self) -> list[str]:
        """Return the columns whose layers are not adapted yet."""

        def waits(layer: Any) -> bool:
            if isinstance(layer, layers.Normalization):
                return layer.input_mean is None
            if isinstance(layer, layers.Discretization):
                return layer.bin_boundaries is None
            if isinstance(layer, layers.IntegerLookup | layers.StringLookup | layers.TextVectorization):
                return not layer.get_vocabulary(include_special_tokens=False)
            return hasattr(layer, "adapt") and not layer.built

        return [column for column, layer in self.preprocessors.items() if waits(layer)]

    def adapt(self, dataset: Any) -> None:
        """Show the data to all layers that depend on it.

        Args:
            dataset: a dict of arrays by column, or something that can be read several times and delivers such dicts.
        """
        batches = [dataset] if isinstance(dataset, Mapping) else dataset
        for column in self._adaptable():
            layer = self.preprocessors[column]
            layer.adapt(np.concatenate([self._column(batch, column) for batch in _dicts(batches)]))
        self._is_adapted = True

    def _column(self, batch: Mapping[str, Any], column: str) -> np.ndarray:
        if column not in batch:
            raise ArgumentError(f"The data has no column {column!r}.", received=f"columns {', '.join(batch)}")
        values = np.asarray(batch[column])
        rows = values.reshape((1, 1)) if values.ndim == 0 else values[:, None] if values.ndim == 1 else values
        # Texts are given to their layer one by one, not as rows of one.
        return rows[:, 0] if isinstance(self.preprocessors[column], layers.TextVectorization) else rows

    # ------------------------------------------------------------------------------------------------------------ call

    def get_inputs(self) -> dict[str, KerasTensor]:
        """Return an input for each column, for a functional model."""
        return {column: layers.Input((1,), dtype=f.dtype, name=column) for column, f in self.features.items()}

    def get_encoded_features(self) -> Any:
        """Return inputs of a functional model with the types of the encoded features."""
        self._check_adapted()
        sizes = {name: self._size(name, mode) for name, mode in self._modes().items()}
        if self.output_mode == "concat":
            return layers.Input((sum(sizes.values()),), name="encoded_features")
        modes = self._modes()
        integers = str(weft.dtypes.canonicalize_dtype("int64"))
        kind = lambda name: integers if modes[name] == "int" else "float32"
        return {name: layers.Input((size,), dtype=kind(name), name=f"encoded_{name}") for name, size in sizes.items()}

    def _modes(self) -> dict[str, str]:
        """Return the output mode of each column and each cross, in the order of the results."""
        columns = {name: self.features[name].output_mode for name in sorted(self.features)}
        crosses = {cross.name: cross.output_mode for cross in sorted(self.crosses, key=lambda cross: cross.name)}
        return {**columns, **crosses}

    def _size(self, name: str, mode: str) -> int:
        if mode == "one_hot":
            return self._count(name)
        layer = self.preprocessors.get(name)
        shape = (None, 1) if layer is None else layer.compute_output_shape((None, 1))
        return int(shape[-1])

    def _count(self, name: str) -> int:
        """Return the number of integers that a column may have."""
        layer = self.preprocessors[name] if name in self.preprocessors else self.crossers[name]
        if isinstance(layer, layers.IntegerLookup | layers.StringLookup):
            return layer.vocabulary_size()
        for attribute in ("num_bins", "num_tokens"):
            if getattr(layer, attribute, None) is not None:
                return int(getattr(layer, attribute))
        if isinstance(layer, layers.Discretization):
            return len(layer.bin_boundaries) + 1
        raise ArgumentError(
            f"The feature {name!r} cannot be one-hot: {type(layer).__name__} does not say how many integers there are.",
            fix="output_mode='int'",
        )

    def _check_adapted(self) -> None:
        if not self._is_adapted:
            raise ArgumentError(
                f"The columns {', '.join(self._adaptable())} depend on data that was not shown yet.",
                fix="space.adapt(data)",
            )

    def __call__(self, data: Mapping[str, Any]) -> Any:
        """Encode the columns of a dict of arrays (or of a dict of scalars, one row).

        Args:
            data: arrays by column.

        Returns:
            One array of float32, or a dict of arrays.
        """
        self._check_adapted()
        if not isinstance(data, Mapping):
            raise ArgumentError("A FeatureSpace must be called with a dict of columns.", received=type(data).__name__)
        single = all(np.ndim(data[column]) == 0 for column in self.features if column in data)
        prepared = {c: self.preprocessors[c](self._column(data, c)) for c in self.features}
        for cross in self.crosses:
            prepared[cross.name] = self.crossers[cross.name]([prepared[c] for c in cross.feature_names])
        found: dict[str, Any] = {}
        for name, mode in self._modes().items():
            value = prepared[name]
            if mode == "one_hot":
                if not wnp.issubdtype(value.dtype, wnp.integer):
                    raise ArgumentError(
                        f"The one-hot feature {name!r} must be an integer; its layer returned {value.dtype}.",
                        fix="output_mode='float'",
                    )
                value = layers.CategoryEncoding(self._count(name), output_mode="multi_hot")(value)
            if self.output_mode == "concat" and not wnp.issubdtype(value.dtype, wnp.floating):
                raise ArgumentError(
                    f"The feature {name!r} is {value.dtype}, which is not concatenated with others.",
                    fix=("output_mode='one_hot' of the feature", "output_mode='dict'"),
                )
            found[name] = value
        if self.output_mode == "concat":
            merged = wnp.concatenate([value.astype(wnp.float32) for value in found.values()], axis=-1)
            return merged[0] if single else merged
        return {name: value[0] for name, value in found.items()} if single else found

    # ----------------------------------------------------------------------------------------------------------- files

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            "features": registry.serialize_keras_object(self.features),
            "output_mode": self.output_mode,
            "crosses": registry.serialize_keras_object(self.crosses),
            "crossing_dim": self.crossing_dim,
            "hashing_dim": self.hashing_dim,
            "num_discretization_bins": self.num_discretization_bins,
            "name": self.name,
        }

    def get_build_config(self) -> dict[str, Any]:
        """Return the shapes that the layers were built with, by column."""
        return {column: layer.get_build_config() for column, layer in self.preprocessors.items()}

    def build_from_config(self, config: dict[str, Any] | None) -> None:
        """Build the layers of columns as they were.

        Args:
            config: what `get_build_config` returned.
        """
        for column, shapes in (config or {}).items():
            if column in self.preprocessors and not self.preprocessors[column].built:
                self.preprocessors[column].build_from_config(shapes)
        self.built = True
        self._is_adapted = True

    def save(self, filepath: Any) -> None:
        """Write it to a file; `keras.models.load_model` reads it.

        Args:
            filepath: the file, whose name ends in ".keras".
        """
        self.built = True
        save_model(self, filepath)


def _name(name: str | None, kind: str) -> str:
    return f"{name or auto_name(kind)}_preprocessor"


def _dicts(batches: Iterable[Any]) -> Iterable[Mapping[str, Any]]:
    for batch in batches:
        if not isinstance(batch, Mapping):
            raise ArgumentError(
                "Data for a FeatureSpace is dicts of columns.",
                received=type(batch).__name__,
                fix="data without targets",
            )
        yield batch


registry.register("utils", FeatureSpace)
# What Keras calls a layer that changes nothing, here.
registry.register("layers.preprocessing.feature_space", Feature, Cross, aliases={"TFDIdentity": layers.Identity})
