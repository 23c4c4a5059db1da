"""TextVectorization: text as indices of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core import config
from weft.keras.core.spec import check_positive
from weft.keras.graph.tensor import KerasTensor
from weft.keras.layers.preprocessing.categories import HostLayer, iterate_batches, texts
from weft.keras.layers.preprocessing.lookup import StringLookup, check_vocabulary, pad_rows
from weft.keras.numerics.shapes import Shape

_PUNCTUATION = re.compile(r"[!\"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']")


class TextVectorization(HostLayer):
    """Text as the indices of its words in a vocabulary, or as a vector; outside of programs.

    Args:
      max_tokens: how many indices there are at most.
      standardize: "lower_and_strip_punctuation", "lower", "strip_punctuation", None, or a function of an array of
        strings.
      split: "whitespace", "character", None, or a function from an array of strings to lists of words.
      ngrams: the largest number of words in a token, or a tuple of the numbers of words.
      output_mode: "int", "multi_hot", "count" or "tf_idf".
      output_sequence_length: to how many indices results are cut or filled with 0; by default to the longest.
      pad_to_max_tokens: whether vectors have `max_tokens` elements.
      vocabulary: a list, or the path of a file; or use `adapt`.
      idf_weights: weights of the words for the mode "tf_idf".
      sparse, ragged: must be False.
      encoding: of bytes.

    Example:
      >>> from weft import keras
      >>> layer = keras.layers.TextVectorization(vocabulary=["the", "cat"])
      >>> layer(["The cat!", "the dog"])
      Array([[2, 3],
             [2, 1]], dtype=int32)
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: str | Callable[[Any], Any] | None = "lower_and_strip_punctuation",
        split: str | Callable[[Any], Any] | None = "whitespace",
        ngrams: int | Sequence[int] | None = None,
        output_mode: str = "int",
        output_sequence_length: int | None = None,
        pad_to_max_tokens: bool = False,
        vocabulary: Any = None,
        idf_weights: Any = None,
        sparse: bool = False,
        ragged: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        words = ("lower_and_strip_punctuation", "lower", "strip_punctuation", None)
        if standardize not in words and not callable(standardize):
            raise ArgumentError(f"`standardize` must be one of {words} or a function. Received: {standardize!r}")
        if split not in ("whitespace", "character", None) and not callable(split):
            raise ArgumentError(f"`split` must be 'whitespace', 'character', None or a function. Received: {split!r}")
        for width in ngrams if isinstance(ngrams, (list, tuple)) else [] if ngrams is None else [ngrams]:
            check_positive(ngrams=width)
        if ragged:
            raise NotSupportedError("ragged=True is not supported: results are arrays, filled with 0.")
        if output_mode != "int" and output_sequence_length is not None:
            raise ArgumentError(
                f"`output_sequence_length` goes with output_mode='int'. Received: output_mode={output_mode!r}"
            )
        self.set_arguments(
            standardize=standardize,
            split=split,
            ngrams=tuple(ngrams) if isinstance(ngrams, (list, tuple)) else ngrams,
            output_mode=output_mode,
            output_sequence_length=output_sequence_length,
            ragged=ragged,
            encoding=encoding,
        )
        self._lookup_layer = StringLookup(
            max_tokens=max_tokens,
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            pad_to_max_tokens=pad_to_max_tokens,
            mask_token="",
            output_mode=output_mode,
            sparse=sparse,
            encoding=encoding,
        )

    # ------------------------------------------------------------------------------------------------------- vocabulary

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Make a vocabulary of the words of an array or a list of texts, or of batches of them."""
        self.reset_state()
        for batch in iterate_batches(data, steps):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Take one batch of texts into account."""
        self._lookup_layer.update_state(self._words(data))

    def finalize_state(self) -> None:
        """Make the vocabulary of the most frequent words."""
        self._lookup_layer.finalize_state()

    def reset_state(self) -> None:
        """Forget what was seen."""
        self._lookup_layer.reset_state()

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """Return the words in the order of their indices."""
        return self._lookup_layer.get_vocabulary(include_special_tokens)

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Set the words."""
        self._lookup_layer.set_vocabulary(vocabulary, idf_weights)

    def vocabulary_size(self) -> int:
        """Return the number of indices, including those of special tokens."""
        return self._lookup_layer.vocabulary_size()

    # ------------------------------------------------------------------------------------------------------------- call

    def _words(self, inputs: Any) -> list[list[str]]:
        """Standardize each text and split it into tokens."""
        lines = texts(inputs, self.encoding)
        if callable(self.standardize):
            lines = np.asarray(self.standardize(lines.astype(str)), object)
        elif self.standardize is not None:
            lines = np.vectorize(self._standard, otypes=[object])(lines) if lines.size else lines
        if self.split is None:
            rows = [list(row) for row in (lines if lines.ndim > 1 else lines[:, None])]
        else:
            if lines.ndim > 1 and lines.shape[-1] != 1:
                raise ArgumentError(
                    f"TextVectorization takes texts (batch,) or (batch, 1). Received: shape {lines.shape}"
                )
            rows = self._split_lines(lines.reshape(-1))
        return rows if self.ngrams is None else [self._grams(row) for row in rows]

    def _standard(self, line: str) -> str:
        line = line.lower() if "lower" in self.standardize else line
        return _PUNCTUATION.sub("", line) if "punctuation" in self.standardize else line

    def _split_lines(self, lines: np.ndarray) -> list[list[str]]:
        if callable(self.split):
            return [[str(word) for word in row] for row in self.split(lines.astype(str))]
        return [line.split() if self.split == "whitespace" else list(line) for line in lines]

    def _grams(self, row: list[str]) -> list[str]:
        widths = range(1, self.ngrams + 1) if isinstance(self.ngrams, int) else self.ngrams
        return [" ".join(row[i : i + width]) for width in widths for i in range(len(row) - width + 1)]

    def call(self, inputs: Any) -> Array:
        """Return the indices of the words of each text, or vectors of them."""
        lookup = self._lookup_layer
        if not lookup.get_vocabulary(include_special_tokens=False):
            raise ArgumentError(f"{self.name!r} has no vocabulary yet: give one, or call `adapt(data)`.")
        rows = [[lookup._index(word) for word in row] for row in self._words(inputs)]
        if self.output_mode == "int":
            return wnp.asarray(pad_rows(rows, self.output_sequence_length).astype(self._integers()))
        size = max((len(row) for row in rows), default=0)
        indices = np.full((len(rows), size), -1, np.int64)
        for row, own in zip(rows, indices, strict=True):
            own[: len(row)] = row
        return lookup.encode_indices(indices)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        if self.output_mode == "int":
            return (input_shape[0], self.output_sequence_length)
        return (input_shape[0], self._lookup_layer.compute_output_shape((1, 1))[-1])

    def compute_output_spec(self, inputs: Any) -> KerasTensor:
        """Return the symbolic output for a symbolic input."""
        dtype = self._integers() if self.output_mode == "int" else config.floatx()
        return KerasTensor(self.compute_output_shape(inputs.shape), dtype)

    def save_own_variables(self, store: Any) -> None:
        """Write the weights of the mode "tf_idf" to a mapping.

        Args:
            store: a mapping of names to arrays.
        """
        self._lookup_layer.save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        """Read the weights of the mode "tf_idf" from a mapping.

        Args:
            store: what `save_own_variables` wrote.
        """
        self._lookup_layer.load_own_variables(store)

    def load_assets(self, dir_path: Any) -> None:
        """Read the vocabulary that Keras writes beside the weights of a layer that was adapted.

        Args:
            dir_path: the folder of the layer.
        """
        self._lookup_layer.load_assets(dir_path)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Construct a layer from a config of `get_config`, of Weft or of Keras.

        Args:
            config: plain data.
        """
        return super().from_config(check_vocabulary(config))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments with the present vocabulary."""
        names = ("max_tokens", "pad_to_max_tokens", "sparse", "vocabulary", "idf_weights")
        inner = self._lookup_layer.get_config()
        return {**super().get_config(), **{name: inner[name] for name in names}}
