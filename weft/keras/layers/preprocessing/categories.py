"""CategoryEncoding, Discretization, Hashing, HashedCrossing: categories as integers or as vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import Array, nn
from weft.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from weft.keras.core import config
from weft.keras.graph.tensor import KerasTensor
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.layers.preprocessing.hashes import combine, fingerprint, sip_hash
from weft.keras.numerics.shapes import Shape

MODES = ("int", "one_hot", "multi_hot", "count")


def encode(indices: Any, mode: str, count: int, dtype: Any, weights: Any = None) -> Array:
    """Return indices, or encode them as vectors of `count` numbers: one vector for each index, or one for all indices
    along the first axis after the batch.
    """
    indices = wnp.asarray(indices)
    if mode == "int":
        return indices.astype(weft.dtypes.canonicalize_dtype(dtype))  # files of Keras have int64
    if indices.ndim == 0:
        indices = indices[None]
    if mode == "one_hot":
        if indices.ndim > 1 and indices.shape[-1] == 1:
            indices = indices[..., 0]
        return nn.one_hot(indices, count, dtype=dtype)
    axis = 1 if indices.ndim > 1 else 0
    each = nn.one_hot(indices, count, dtype=dtype)
    if mode == "multi_hot":
        return wnp.max(each, axis=axis)
    return wnp.sum(each if weights is None else each * wnp.expand_dims(weights, -1), axis=axis)


def encoded_shape(shape: Sequence[Any], mode: str, count: int | None) -> Shape:
    """Return the shape of the result of `encode`."""
    if mode == "int":
        return tuple(shape)
    if mode == "one_hot":
        return (*(shape[:-1] if len(shape) > 1 and shape[-1] == 1 else shape), count)
    return (shape[0], *shape[2:], count) if len(shape) > 1 else (count,)


def check_mode(mode: str, allowed: Sequence[str], sparse: bool) -> None:
    """Raise an error unless the mode is allowed and `sparse` is False."""
    if mode not in allowed:
        raise ArgumentError(f"`output_mode` must be one of {tuple(allowed)}. Received: output_mode={mode!r}")
    if sparse:
        raise NotSupportedError("sparse=True is not supported: results are arrays with all elements.")


class CategoryEncoding(ConfiguredLayer):
    """Integers as vectors.

    Args:
      num_tokens: how many categories there are; integers are from 0 to num_tokens - 1.
      output_mode: "multi_hot" (1 for each category in a row), "one_hot" (a vector for each integer) or "count".
      sparse: must be False.
    """

    def __init__(
        self, num_tokens: int | None = None, output_mode: str = "multi_hot", sparse: bool = False, **kwargs: Any
    ):
        super().__init__(**kwargs)
        output_mode = "multi_hot" if output_mode == "binary" else output_mode
        check_mode(output_mode, MODES[1:], sparse)
        if num_tokens is None or num_tokens < 1:
            raise ArgumentError(f"`num_tokens` must be a positive integer. Received: num_tokens={num_tokens}")
        self.set_arguments(num_tokens=num_tokens, output_mode=output_mode, sparse=sparse)

    def call(self, inputs: Array, count_weights: Any = None) -> Array:
        """Encode the integers as vectors; `count_weights` are the weights of the integers in the mode "count"."""
        if count_weights is not None and self.output_mode != "count":
            raise ArgumentError(f"`count_weights` are for the mode 'count'. Received: mode {self.output_mode!r}")
        weights = None if count_weights is None else wnp.asarray(count_weights, self.compute_dtype)
        return encode(wnp.asarray(inputs).astype(wnp.int32), self.output_mode, self.num_tokens, self.dtype, weights)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        return encoded_shape(input_shape, self.output_mode, self.num_tokens)


class Discretization(ConfiguredLayer):
    """Numbers as the index of the interval that they lie in.

    Args:
      bin_boundaries: where intervals meet, ascending.
      num_bins: how many intervals there are; `adapt` then finds boundaries with as much data in each.
      epsilon: how exact `adapt` is; smaller needs more memory.
      output_mode: "int", "one_hot", "multi_hot" or "count".
      sparse: must be False.
    """

    def __init__(
        self,
        bin_boundaries: Sequence[float] | None = None,
        num_bins: int | None = None,
        epsilon: float = 0.01,
        output_mode: str = "int",
        sparse: bool = False,
        dtype: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        check_mode(output_mode, MODES, sparse)
        if (num_bins is None) == (bin_boundaries is None):
            raise ArgumentError(
                f"Give `num_bins` or `bin_boundaries`. Received: num_bins={num_bins}, bin_boundaries={bin_boundaries}"
            )
        self.set_arguments(
            bin_boundaries=None if bin_boundaries is None else list(bin_boundaries),
            num_bins=num_bins,
            epsilon=epsilon,
            output_mode=output_mode,
            sparse=sparse,
        )
        self.summary: np.ndarray
        self.reset_state()

    @property
    def output_dtype(self) -> str:
        """The dtype of the result."""
        return "int32" if self.output_mode == "int" else self.compute_dtype

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Find the boundaries from an array, or from batches."""
        if self.num_bins is None:
            raise ArgumentError(
                f"{self.name!r} has fixed `bin_boundaries` and cannot be adapted; construct it with `num_bins`."
            )
        self.reset_state()
        for batch in iterate_batches(data, steps):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Take one batch into account."""
        values = np.sort(np.asarray(data, np.float32).reshape(-1))
        step = max(values.size * self.epsilon, 1)
        chosen = values[int(step - 1) :: int(step)]
        merged = np.concatenate([np.stack([chosen, np.full_like(chosen, step)]), self.summary], axis=1)
        self.summary = _compress(merged[:, np.argsort(merged[0])], self.epsilon)

    def finalize_state(self) -> None:
        """Set the boundaries from what was seen."""
        if self.num_bins is not None:
            self.bin_boundaries = _compress(self.summary, 1.0 / self.num_bins)[0, :-1].tolist()

    def reset_state(self) -> None:
        """Forget what was seen."""
        self.summary = np.zeros((2, 0), np.float32)

    def call(self, inputs: Array) -> Array:
        """Return the indices of the intervals, or vectors of them."""
        if self.bin_boundaries is None:
            raise ArgumentError(f"{self.name!r} has no boundaries yet: give `bin_boundaries`, or call `adapt(data)`.")
        boundaries = wnp.asarray(np.asarray(self.bin_boundaries, np.float32))
        indices = wnp.digitize(wnp.asarray(inputs), boundaries)
        return encode(indices, self.output_mode, len(self.bin_boundaries) + 1, self.output_dtype)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        known = self.bin_boundaries is not None
        return encoded_shape(input_shape, self.output_mode, len(self.bin_boundaries) + 1 if known else self.num_bins)

    def compute_output_spec(self, inputs: Any) -> KerasTensor:
        """Return the symbolic output for a symbolic input."""
        return KerasTensor(self.compute_output_shape(inputs.shape), self.output_dtype)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Discretization:
        """Construct a layer from a config of `get_config`; boundaries that `adapt` found are set afterwards."""
        config = dict(config)
        boundaries = config.pop("bin_boundaries", None) if config.get("num_bins") is not None else None
        layer = cls(**config)
        if boundaries is not None:
            layer.bin_boundaries = boundaries
        return layer


def _compress(summary: np.ndarray, epsilon: float) -> np.ndarray:
    """Compress values and weights of a distribution to 1 / epsilon values of equal weight."""
    if summary.shape[1] * epsilon < 1:
        return summary
    shares = epsilon + np.arange(0.0, 1.0, epsilon)
    total = summary[1].cumsum()
    known = total / total[-1]
    values = np.interp(shares, known, summary[0])
    weights = np.diff(np.interp(shares, known, total), prepend=0)
    return np.stack([values, weights]).astype(np.float32)


def iterate_batches(data: Any, steps: int | None = None) -> Iterable[Any]:
    """Yield an array (of any library), a column, table or list whole; of other iterables at most `steps` batches."""
    if isinstance(data, (str, bytes)):
        raise ArgumentTypeError("adapt takes arrays or lists of strings, not one string.", received=repr(data)[:100])
    if isinstance(data, (list, tuple)):
        yield data
        return
    if is_array(data):
        yield np.asarray(data)
        return
    for i, batch in enumerate(data):
        if steps is not None and i >= steps:
            return
        yield batch[0] if isinstance(batch, tuple) else batch


def is_array(data: Any) -> bool:
    """Return whether data is an array or converts to one: a column or table of pandas, a tensor of PyTorch."""
    return isinstance(data, (np.ndarray, Array)) or (hasattr(data, "__array__") and not isinstance(data, KerasTensor))


def texts(inputs: Any, encoding: str = "utf-8") -> np.ndarray:
    """Convert strings, bytes or numbers to an array of str; floats are rounded towards 0 first."""
    values = np.asarray(inputs)
    if values.dtype.kind == "f":
        values = values.astype(np.int64)
    out = np.empty(values.shape, object)
    for index, value in np.ndenumerate(values):
        out[index] = value.decode(encoding) if isinstance(value, bytes) else str(value)
    return out


class HostLayer(ConfiguredLayer):
    """A layer for strings, which are not in programs: it computes by Python and NumPy, outside of `jit`."""

    _converts_arguments = False

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer on strings or integers, in arrays or lists."""
        listed = isinstance(inputs, (list, tuple)) and not _has_arrays(inputs)
        foreign = is_array(inputs) and not isinstance(inputs, Array)
        if listed or foreign or isinstance(inputs, (str, bytes, int)):
            inputs = np.asarray(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        """Mark the layer as built: it has no variables, and its function cannot be traced.

        Args:
            input_shape: the shape of the input.
        """

    def _integers(self) -> str:
        """Return the dtype of integer results."""
        return str(weft.dtypes.canonicalize_dtype("int64"))


def _has_arrays(tree: Any) -> bool:
    return any(hasattr(item, "shape") for item in tree)


class Hashing(HostLayer):
    """Strings or integers as one of `num_bins` integers, by a hash.

    Args:
      num_bins: how many integers there are, that of `mask_value` among them.
      mask_value: the input that becomes 0.
      salt: an integer or two: the key of SipHash; without it FarmHash is used.
      output_mode: "int", "one_hot", "multi_hot" or "count".
      sparse: must be False.
    """

    def __init__(
        self,
        num_bins: int,
        mask_value: Any = None,
        salt: Any = None,
        output_mode: str = "int",
        sparse: bool = False,
        **kwargs: Any,
    ):
        check_mode(output_mode, MODES, sparse)
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = self._integers() if output_mode == "int" else config.floatx()
        super().__init__(**kwargs)
        if output_mode == "int" and not self.dtype.startswith(("int", "uint")):
            raise ArgumentError("`dtype` must be one of integers for output_mode='int'.", received=f"{self.dtype=}")
        if num_bins is None or num_bins <= 0:
            raise ArgumentError(f"`num_bins` must be a positive integer. Received: num_bins={num_bins}")
        self.set_arguments(
            num_bins=num_bins, mask_value=mask_value, salt=sip_hash_key(salt), output_mode=output_mode, sparse=sparse
        )

    def call(self, inputs: Any) -> Array:
        """Return bin indices, or vectors of them, by `output_mode`."""
        masked = self.mask_value is not None and self.num_bins > 1
        bins = self.num_bins - 1 if masked else self.num_bins
        words = texts(inputs)
        indices = np.zeros(words.shape, np.int64)
        for index, word in np.ndenumerate(words):
            if not masked or word != str(self.mask_value):
                indices[index] = hash_string(word, self.salt) % bins + masked
        return encode(indices, self.output_mode, self.num_bins, self.dtype)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        return encoded_shape(input_shape, self.output_mode, self.num_bins)

    def compute_output_spec(self, inputs: Any) -> KerasTensor:
        """Return the symbolic output for a symbolic input."""
        return KerasTensor(self.compute_output_shape(inputs.shape), self.dtype)


def sip_hash_key(salt: Any) -> list[int] | None:
    """Return the key of SipHash as two integers, or None without salt."""
    if salt is None:
        return None
    if isinstance(salt, int):
        return [salt, salt]
    if isinstance(salt, (list, tuple)) and len(salt) == 2:
        return [int(part) for part in salt]
    raise ArgumentError(f"`salt` must be an integer or two. Received: salt={salt!r}")


def hash_string(word: str, salt: Sequence[int] | None) -> int:
    """Hash a string to 64 bits."""
    data = word.encode()
    return fingerprint(data) if salt is None else sip_hash(data, (salt[0], salt[1]))


class HashedCrossing(HostLayer):
    """Several features as one: a hash of each combination of their values.

    Args:
      num_bins: how many integers there are.
      output_mode: "int" or "one_hot".
      sparse: must be False.
    """

    def __init__(
        self,
        num_bins: int,
        output_mode: str = "int",
        sparse: bool = False,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ):
        check_mode(output_mode, MODES[:2], sparse)
        if dtype is None and output_mode == "int":
            dtype = self._integers()
        super().__init__(name=name, dtype=dtype, **kwargs)
        self.set_arguments(num_bins=num_bins, output_mode=output_mode, sparse=sparse)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer on a list of features."""
        if not isinstance(inputs, (list, tuple)) or len(inputs) < 2:
            raise ArgumentError("HashedCrossing is called on a list of at least two features.")
        arrays = [x if hasattr(x, "shape") else np.asarray(x) for x in inputs]
        return super().__call__(arrays, *args, **kwargs)

    def call(self, inputs: Any) -> Array:
        """Return bin indices, or vectors of them, by `output_mode`."""
        features = [np.asarray(x) for x in inputs]
        if any(feature.dtype.kind == "f" for feature in features):
            raise ArgumentTypeError(
                "The inputs of HashedCrossing must be integers or strings.",
                received=", ".join(str(x.dtype) for x in features),
            )
        shape = features[0].shape
        if len(shape) > 2 or (len(shape) == 2 and shape[1] != 1) or any(x.shape != shape for x in features):
            raise ArgumentError(
                "HashedCrossing takes features of one shape: (), (batch,) or (batch, 1). "
                f"Received: {[x.shape for x in features]}"
            )
        indices = np.zeros(shape, np.int64)
        for index in np.ndindex(*shape):
            value = 0xDECAFCAFFE
            for feature in features:
                value = combine(value, _feature(feature[index]))
            indices[index] = value % self.num_bins
        return encode(indices, self.output_mode, self.num_bins, self.dtype)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for these input shapes."""
        return encoded_shape(input_shape[0], self.output_mode, self.num_bins)

    def compute_output_spec(self, inputs: Any) -> KerasTensor:
        """Return the symbolic output for symbolic inputs."""
        return KerasTensor(self.compute_output_shape([x.shape for x in inputs]), self.dtype)


def _feature(value: Any) -> int:
    """Convert a feature to 64 bits: a string to its fingerprint, an integer to itself."""
    if isinstance(value, (str, bytes)):
        return fingerprint(value if isinstance(value, bytes) else value.encode())
    return int(value) & ((1 << 64) - 1)
