"""StringLookup and IntegerLookup: tokens as indices of a vocabulary, and back."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.core.registry import check_trust
from weft.keras.graph.tensor import KerasTensor
from weft.keras.layers.preprocessing.categories import (
    MODES,
    HostLayer,
    check_mode,
    encode,
    encoded_shape,
    hash_string,
    iterate_batches,
    sip_hash_key,
)
from weft.keras.numerics.shapes import Shape


class IndexLookup(HostLayer):
    """A vocabulary: the mask token (in the mode "int"), tokens that it does not have, and those that it has.

    A vocabulary is given, or `adapt` makes one of the most frequent tokens in data.
    """

    def _set_lookup(
        self,
        max_tokens: int | None,
        num_oov_indices: int,
        mask_token: Any,
        oov_token: Any,
        vocabulary: Any,
        idf_weights: Any,
        invert: bool,
        output_mode: str,
        sparse: bool,
        pad_to_max_tokens: bool,
        salt: Any,
    ) -> None:
        output_mode = {"binary": "multi_hot", "tf-idf": "tf_idf"}.get(output_mode, output_mode)
        check_mode(output_mode, (*MODES, "tf_idf"), sparse)
        if max_tokens is not None and max_tokens <= 1:
            raise ArgumentError(f"`max_tokens` must be more than 1. Received: max_tokens={max_tokens}")
        if pad_to_max_tokens and max_tokens is None:
            raise ArgumentError("`pad_to_max_tokens` needs `max_tokens`.")
        if num_oov_indices < 0:
            raise ArgumentError(f"`num_oov_indices` must not be negative. Received: {num_oov_indices}")
        if invert and output_mode != "int":
            raise ArgumentError(f"`invert` goes with output_mode='int'. Received: output_mode={output_mode!r}")
        self.set_arguments(
            max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
            mask_token=mask_token,
            oov_token=oov_token,
            invert=invert,
            output_mode=output_mode,
            sparse=sparse,
            pad_to_max_tokens=pad_to_max_tokens,
            salt=sip_hash_key(salt),
        )
        self._tokens: list[Any] = []
        self._indices: dict[Any, int] = {}
        self.idf_weights: np.ndarray | None = None
        self._adaptable = vocabulary is None
        self.reset_state()
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)
        elif idf_weights is not None:
            raise ArgumentError("`idf_weights` must be passed together with a `vocabulary`.")

    # ------------------------------------------------------------------------------------------------------- vocabulary

    def _token(self, value: Any) -> Any:
        """Normalize a token to the form that the vocabulary has."""
        raise NotImplementedError

    def _special(self) -> list[Any]:
        """Return the special tokens, which precede the vocabulary."""
        mask = [self.mask_token] if self.mask_token is not None and self.output_mode == "int" else []
        return mask + [self.oov_token] * self.num_oov_indices

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Set the tokens: a list, or the path of a file with one in each line; weights too for the mode "tf_idf"."""
        if isinstance(vocabulary, (str, pathlib.Path)):
            vocabulary = pathlib.Path(vocabulary).read_text(encoding="utf-8").splitlines()
        if (idf_weights is None) == (self.output_mode == "tf_idf"):
            raise ArgumentError(
                f"`idf_weights` are for output_mode='tf_idf', and needed there. Received: {self.output_mode!r}"
            )
        tokens = [self._token(value) for value in np.asarray(vocabulary, object).tolist()]
        if not tokens:
            raise ArgumentError("A vocabulary has at least one token. Received: an empty one")
        special = self._special()
        whole = tokens[: len(special)] == special
        weights = None if idf_weights is None else np.asarray(idf_weights, np.float32)
        if weights is not None and weights.shape != (len(tokens),):
            raise ArgumentError(f"There must be one weight for each of {len(tokens)} tokens. Received: {weights.shape}")
        tokens = tokens[len(special) :] if whole else tokens
        counted = collections.Counter(tokens)
        repeated = [token for token, count in counted.items() if count > 1]
        if repeated or (self.mask_token is not None and self.mask_token in counted):
            raise ArgumentError(
                f"Tokens of a vocabulary differ from each other and from the mask token {self.mask_token!r}; special "
                f"tokens are left out, or come first as {special}. Received: {repeated or self.mask_token!r} again"
            )
        size = len(special) + len(tokens)
        if self.max_tokens is not None and size > self.max_tokens:
            raise ArgumentError(
                f"The vocabulary must have at most {self.max_tokens} tokens, including the special ones; got {size}."
            )
        self._tokens = tokens
        self._indices = {token: i + len(special) for i, token in enumerate(tokens)}
        if weights is not None:
            # Nothing is known of tokens that the vocabulary does not have: they count as an average one.
            front = [] if whole else [float(np.mean(weights))] * len(special)
            self.idf_weights = np.concatenate([np.asarray(front, np.float32), weights])

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Return the tokens in the order of their indices."""
        return [*(self._special() if include_special_tokens else []), *self._tokens]

    def vocabulary_size(self) -> int:
        """Return the number of indices, including those of special tokens."""
        return len(self._special()) + len(self._tokens)

    # ----------------------------------------------------------------------------------------------------------- adapt

    def reset_state(self) -> None:
        """Forget what was seen."""
        self._counts: collections.Counter[Any] = collections.Counter()
        self._document_counts: collections.Counter[Any] = collections.Counter()
        self._documents = 0

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Make a vocabulary of the tokens of an array, or of batches."""
        self.reset_state()
        for batch in iterate_batches(data, steps):
            values = batch if _is_ragged(batch) else np.asarray(batch)
            self.update_state(values[:, None] if isinstance(values, np.ndarray) and values.ndim == 1 else values)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Take one batch into account; each row is a document."""
        if not self._adaptable:
            raise ArgumentError(f"{self.name!r} was made with a vocabulary, so there is nothing to adapt.")
        rows = list(data) if _is_ragged(data) else np.atleast_2d(np.asarray(data)).reshape(np.shape(data)[:1] + (-1,))
        for row in rows:
            tokens = [self._token(value) for value in row]
            self._counts.update(tokens)
            self._document_counts.update(set(tokens))
        self._documents += len(rows)

    def finalize_state(self) -> None:
        """Make the vocabulary of the most frequent tokens; of those as frequent, the last in order come first."""
        if not self._adaptable:
            return
        counts = {token: n for token, n in self._counts.items() if token not in (self.mask_token, self.oov_token)}
        if not counts:
            self._tokens, self._indices = [], {}
            return
        ordered = sorted(counts, key=lambda token: (counts[token], token), reverse=True)
        if self.max_tokens is not None:
            ordered = ordered[: self.max_tokens - len(self._special())]
        weights = None
        if self.output_mode == "tf_idf":
            weights = [np.log(1 + self._documents / (1 + self._document_counts[token])) for token in ordered]
        self.set_vocabulary(ordered, weights)
        self.reset_state()

    # ------------------------------------------------------------------------------------------------------------- call

    def _index(self, token: Any) -> int:
        """Return the index of a token; -1 for the mask token if it has no index."""
        if self.mask_token is not None and token == self.mask_token:
            return 0 if self.output_mode == "int" else -1
        found = self._indices.get(token)
        if found is not None:
            return found
        if self.num_oov_indices == 0:
            raise ArgumentError(
                f"{self.name!r} got a token that its vocabulary does not have, and num_oov_indices=0. "
                f"Received: {token!r}"
            )
        first = 1 if self.mask_token is not None and self.output_mode == "int" else 0
        return first + (self._bin(token) if self.num_oov_indices > 1 else 0)

    def _bin(self, token: Any) -> int:
        """Return which of several out-of-vocabulary indices an unknown token has."""
        return hash_string(token, self.salt) % self.num_oov_indices

    def call(self, inputs: Any) -> Any:
        """Look up the indices of tokens, or vectors of them; with `invert` the tokens of indices."""
        if not self._tokens:
            raise ArgumentError(f"{self.name!r} has no vocabulary yet: give one, or call `adapt(data)`.")
        values = np.asarray(inputs)
        if self.invert:
            names = self.get_vocabulary()
            out = np.empty(values.shape, object)
            for position, index in np.ndenumerate(values):
                out[position] = names[int(index)] if 0 <= int(index) < len(names) else self.oov_token
            return self._as_tokens(out)
        indices = np.zeros(values.shape, np.int64)
        for position, value in np.ndenumerate(values):
            indices[position] = self._index(self._token(value))
        return self.encode_indices(indices)

    def _as_tokens(self, tokens: np.ndarray) -> Any:
        return tokens.astype(str)

    def encode_indices(self, indices: np.ndarray) -> Array:
        """Encode indices by the output mode; negative ones are skipped."""
        if self.output_mode == "int":
            return wnp.asarray(indices.astype(self._integers()))
        mode = "count" if self.output_mode == "tf_idf" else self.output_mode
        count = self._width()
        if indices.ndim > 2 or mode == "one_hot":
            out = encode(indices, mode, count, config.floatx())
        else:
            # Counted here: vectors for each token of a long text would be large.
            rows = np.atleast_2d(indices)
            sums = np.zeros((len(rows), count), config.floatx())
            for row, own in zip(rows, sums, strict=True):
                np.add.at(own, row[row >= 0], 1)
            sums = np.minimum(sums, 1) if mode == "multi_hot" else sums
            out = wnp.asarray(sums if indices.ndim == 2 else sums[0])
        if self.output_mode == "tf_idf":
            assert self.idf_weights is not None
            out = out * np.pad(self.idf_weights, (0, count - len(self.idf_weights)))
        return out

    def _width(self) -> int:
        return int(self.max_tokens) if self.pad_to_max_tokens else self.vocabulary_size()

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        mode = "count" if self.output_mode == "tf_idf" else self.output_mode
        return encoded_shape(input_shape, mode, self._width())

    def compute_output_spec(self, inputs: Any) -> KerasTensor:
        """Return the symbolic output for a symbolic input."""
        dtype = self._integers() if self.output_mode == "int" else config.floatx()
        return KerasTensor(self.compute_output_shape(inputs.shape), dtype)

    # ----------------------------------------------------------------------------------------------------------- files

    def load_assets(self, dir_path: Any) -> None:
        """Read the vocabulary that Keras writes beside the weights of a layer that was adapted.

        Args:
            dir_path: the folder of the layer.
        """
        file = pathlib.Path(dir_path, "vocabulary.txt")
        if not self._adaptable or not file.exists():
            return
        tokens = file.read_text(encoding="utf-8").split("\n")
        while tokens and not tokens[-1]:
            tokens.pop()
        # Weights come with the variables, which are read next.
        self.set_vocabulary(tokens, np.zeros(len(tokens)) if self.output_mode == "tf_idf" else None)

    def save_own_variables(self, store: Any) -> None:
        """Write the weights of the mode "tf_idf" to a mapping.

        Args:
            store: a mapping of names to arrays.
        """
        if self.idf_weights is not None:
            store["idf_weights"] = self.idf_weights

    def load_own_variables(self, store: Any) -> None:
        """Read the weights of the mode "tf_idf" from a mapping.

        Args:
            store: what `save_own_variables` wrote.
        """
        if self.idf_weights is not None:
            self.idf_weights = np.asarray(store["idf_weights"], np.float32)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Construct a layer from a config of `get_config`, of Weft or of Keras.

        Args:
            config: plain data.
        """
        return super().from_config(check_vocabulary(config))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments with the present vocabulary."""
        weights = None if self.idf_weights is None else self.idf_weights[len(self._special()) :].tolist()
        return {**super().get_config(), "vocabulary": list(self._tokens) or None, "idf_weights": weights}


def check_vocabulary(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without the size of the vocabulary; a file name as vocabulary needs the user's trust."""
    if isinstance(config.get("vocabulary"), str):
        check_trust(
            f"The data name a file to be read as a vocabulary: {config['vocabulary']!r}.",
            "construct the layer with a list, or adapt it",
        )
    # Keras says how many tokens there are, too.
    return {name: value for name, value in config.items() if name != "vocabulary_size"}


def _is_ragged(data: Any) -> bool:
    """Return whether data is a list of rows of different lengths."""
    rows = isinstance(data, (list, tuple)) and all(isinstance(row, (list, tuple, np.ndarray)) for row in data)
    return rows and len({len(row) for row in data}) > 1


class StringLookup(IndexLookup):
    """Strings as indices of a vocabulary; for strings outside of programs.

    Args:
      max_tokens: how many indices there are at most.
      num_oov_indices: how many indices are for strings that the vocabulary does not have.
      mask_token: the string with index 0 in the mode "int".
      oov_token: what `invert` returns for these indices.
      vocabulary: a list, or the path of a file; or use `adapt`.
      idf_weights: weights of the strings for the mode "tf_idf".
      invert: whether indices become strings.
      output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf".
      pad_to_max_tokens: whether vectors have `max_tokens` elements.
      sparse: must be False.
      encoding: of bytes.
      salt: the key of the hash, with several indices for unknown strings.

    Example:
      >>> from weft import keras
      >>> layer = keras.layers.StringLookup(vocabulary=["a", "b"])
      >>> layer([["b", "z"]])
      Array([[2, 0]], dtype=int32)
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: str | None = None,
        oov_token: str = "[UNK]",
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        pad_to_max_tokens: bool = False,
        sparse: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        salt: Any = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        self.set_arguments(encoding=encoding)
        self._set_lookup(
            max_tokens,
            num_oov_indices,
            mask_token,
            oov_token,
            vocabulary,
            idf_weights,
            invert,
            output_mode,
            sparse,
            pad_to_max_tokens,
            salt,
        )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Construct a layer from a config of Weft or of Keras, whose `oov_method` is only for integers.

        Args:
            config: plain data.
        """
        return super().from_config({name: value for name, value in config.items() if name != "oov_method"})

    def _token(self, value: Any) -> str:
        return value.decode(self.encoding) if isinstance(value, bytes) else str(value)


class IntegerLookup(IndexLookup):
    """Integers as indices of a vocabulary; outside of programs.

    Args:
      max_tokens: how many indices there are at most.
      num_oov_indices: how many indices are for integers that the vocabulary does not have.
      mask_token: the integer with index 0 in the mode "int".
      oov_token: what `invert` returns for these indices.
      vocabulary: a list, or the path of a file; or use `adapt`.
      vocabulary_dtype: "int64" or "int32".
      idf_weights: weights of the integers for the mode "tf_idf".
      invert: whether indices become integers.
      output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf".
      sparse: must be False.
      pad_to_max_tokens: whether vectors have `max_tokens` elements.
      oov_method: which of several indices an unknown integer has: "floormod" (its remainder) or "farmhash".
      salt: the key of the hash.

    Example:
      >>> from weft import keras
      >>> layer = keras.layers.IntegerLookup(vocabulary=[12, 36])
      >>> layer([[36, 7]])
      Array([[2, 0]], dtype=int32)
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: int | None = None,
        oov_token: int = -1,
        vocabulary: Any = None,
        vocabulary_dtype: str = "int64",
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        oov_method: str = "floormod",
        salt: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        if oov_method not in ("floormod", "farmhash"):
            raise ArgumentError(f"`oov_method` must be 'floormod' or 'farmhash'. Received: oov_method={oov_method!r}")
        if salt is not None and oov_method != "farmhash":
            raise ArgumentError("`salt` must not be passed unless oov_method='farmhash'.")
        if vocabulary_dtype not in ("int64", "int32"):
            raise ArgumentError("`vocabulary_dtype` must be 'int64' or 'int32'.", received=f"{vocabulary_dtype=}")
        self.set_arguments(vocabulary_dtype=vocabulary_dtype, oov_method=oov_method)
        self._set_lookup(
            max_tokens,
            num_oov_indices,
            mask_token,
            oov_token,
            vocabulary,
            idf_weights,
            invert,
            output_mode,
            sparse,
            pad_to_max_tokens,
            salt,
        )

    def _token(self, value: Any) -> int:
        return int(value)

    def _bin(self, token: int) -> int:
        if self.oov_method == "floormod":
            return token % self.num_oov_indices
        return hash_string(str(token), self.salt) % self.num_oov_indices

    def _as_tokens(self, tokens: np.ndarray) -> Array:
        return wnp.asarray(tokens.astype(np.int64).astype(self._integers()))


def pad_rows(rows: Iterable[Sequence[int]], length: int | None = None) -> np.ndarray:
    """Pad rows of different lengths with trailing zeros to one array, truncated to `length`."""
    rows = [list(row) for row in rows]
    size = max((len(row) for row in rows), default=0) if length is None else length
    out = np.zeros((len(rows), size), np.int64)
    for row, own in zip(rows, out, strict=True):
        own[: min(size, len(row))] = row[:size]
    return out
