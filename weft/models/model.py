"""Models: parameters with the description of what they compute."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import random
from weft.base.lazy import is_importable, lazy
from weft.errors import ArgumentError
from weft.models import files
from weft.models.config import Config
from weft.models.families import read_config, read_json
from weft.models.forward import decode
from weft.models.generation import Decoding, Programs, check_context, check_tokens, pad_prompts, stream_tokens
from weft.models.sampling import Sampler
from weft.models.tokenizer import Tokenizer

hub = lazy("huggingface_hub")

# Files of a folder that a saved model takes over.
_COMPANIONS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "preprocessor_config.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "chat_template.jinja",
)


class Model:
    """Parameters of a model and the programs that run it.

    Args:
        config: the description of the model.
        params: its parameters, a pytree.
        folder: the folder that it was loaded from, for its tokenizer.
    """

    def __init__(self, config: Config, params: Any, folder: str | None = None) -> None:
        self.config = config
        self.params = params
        self.folder = folder
        self.programs = Programs(config)

    def __repr__(self) -> str:
        tower = self.config.tower
        return f"Model({self.config.family}, {len(tower.kinds)} layers of {tower.width}, {self.config.task})"

    def replace(self, params: Any) -> Model:
        """Return the same model with other parameters; compiled programs are shared.

        Args:
            params: a tree like `model.params`.

        Returns:
            A `Model`.
        """
        other = Model.__new__(Model)
        other.__dict__.update(self.__dict__)
        other.params = params
        return other

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the folder that the model was loaded from."""
        if self.folder is None:
            raise ArgumentError("A model without a folder has no tokenizer; load one with models.Tokenizer(folder).")
        return Tokenizer(self.folder, self.config.tower.vocabulary)

    # ------------------------------------------------------------------------------------------------------ forward

    def apply(self, params: Any, ids: Any, mask: Any = None, pieces: Any = None, remat: bool = False) -> Any:
        """Compute logits as a function of the parameters, for `grad` and `jit`.

        Args:
            params: a tree like `model.params`.
            ids: integers (batch, tokens).
            mask: booleans (batch, tokens), false for padding.
            pieces: integers (batch, tokens) that number the texts packed into a row.
            remat: whether the backward pass recomputes the layers.

        Returns:
            The logits (batch, tokens, vocabulary), in float32.
        """
        return decode(self.config, params, ids, mask, pieces, remat)

    @functools.cached_property
    def _apply(self) -> Callable[..., Any]:
        return weft.jit(self.apply)

    def __call__(self, ids: Any, mask: Any = None) -> Any:
        """Compute logits.

        Args:
            ids: integers (tokens) or (batch, tokens).
            mask: booleans like `ids`, false for padding.

        Returns:
            The logits, with an axis for the vocabulary after those of `ids`.
        """
        array = wnp.asarray(ids)
        if not isinstance(array, weft.core.Tracer):
            check_tokens(np.asarray(array), self.config)
        one = array.ndim == 1
        if mask is not None:
            mask = wnp.asarray(mask)
        result = self._apply(
            self.params, array[None] if one else array, mask[None] if one and mask is not None else mask
        )
        return result[0] if one else result

    # --------------------------------------------------------------------------------------------------- generation

    def _ends(self, stop: int | Sequence[int] | None) -> tuple[int, ...]:
        if stop is None:
            stop = self._generation.get("eos_token_id", self.config.raw.get("eos_token_id"))
        if stop is None:
            return ()
        return (stop,) if isinstance(stop, int) else tuple(stop)

    @functools.cached_property
    def _generation(self) -> Mapping[str, Any]:
        path = os.path.join(self.folder or "", "generation_config.json")
        return read_json(path) if self.folder and os.path.isfile(path) else {}

    def stream(
        self,
        prompts: Any,
        max_new_tokens: int = 128,
        *,
        sampler: Sampler | None = None,
        key: Any = None,
        stop_tokens: int | Sequence[int] | None = None,
        stop: str | Sequence[str] = (),
        allowed: Callable[[np.ndarray], Any] | None = None,
    ) -> Iterator[np.ndarray]:
        """Yield the tokens of all sequences as they come.

        Args:
            prompts: integers (tokens) or (batch, tokens), or a list of rows of different lengths.
            max_new_tokens: the most tokens to generate.
            sampler: how tokens are chosen; by default the best one.
            key: the random key of a sampler with a temperature.
            stop_tokens: the tokens that end a sequence; by default those of the model.
            stop: texts that end a sequence, which needs the tokenizer.
            allowed: a function from the tokens so far, (batch, tokens) with the prompts padded on the left, to booleans
                (vocabulary) or (batch, vocabulary) of the tokens that may come next.

        Yields:
            Integers (batch).
        """
        sampler = sampler or Sampler()
        ends = self._ends(stop_tokens)
        pad = ends[0] if ends else 0
        ids, starts = pad_prompts(prompts, pad)
        check_tokens(ids, self.config)
        check_context(ids.shape[1], max_new_tokens, self.config)
        if sampler.is_random and key is None:
            raise ArgumentError("A sampler with a temperature needs a key.", fix="key=weft.random.key(0)")
        decoding = Decoding(self.programs, self.params, ids, starts, max_new_tokens)
        tokens = stream_tokens(
            decoding, ids, starts, max_new_tokens, sampler, random.key(0) if key is None else key, ends, pad, allowed
        )
        texts = (stop,) if isinstance(stop, str) else tuple(stop)
        return self._until(tokens, texts, len(ids)) if texts else tokens

    def _until(self, tokens: Iterator[np.ndarray], texts: tuple[str, ...], batch: int) -> Iterator[np.ndarray]:
        """Yield tokens until each sequence has one of the texts."""
        rows: list[list[int]] = [[] for _ in range(batch)]
        done = [False] * batch
        longest = max(map(len, texts)) + 1
        for found in tokens:
            for i, row in enumerate(rows):
                row.append(int(found[i]))
                # A text of n characters has at most n tokens that end in it.
                done[i] = done[i] or any(text in self.tokenizer.decode(row[-longest:]) for text in texts)
            yield found
            if all(done):
                return

    def generate(self, prompts: Any, max_new_tokens: int = 128, **options: Any) -> np.ndarray:
        """Generate text after prompts.

        Args:
            prompts: integers (tokens) or (batch, tokens), or a list of rows of different lengths.
            max_new_tokens: the most tokens to generate.
            options: those of `stream`.

        Returns:
            The prompts, padded on the left, and the new tokens: integers (tokens) for one prompt without a batch axis,
            else (batch, tokens).
        """
        ends = self._ends(options.get("stop_tokens"))
        ids, _ = pad_prompts(prompts, ends[0] if ends else 0)
        new = [found[:, None] for found in self.stream(prompts, max_new_tokens, **options)]
        result = np.concatenate([ids, *new], 1)
        one = not (isinstance(prompts, (list, tuple)) and prompts and np.ndim(prompts[0])) and np.ndim(prompts) == 1
        return result[0] if one else result

    # -------------------------------------------------------------------------------------------------------- files

    def save(self, folder: str | os.PathLike[str], largest: int = 5_000_000_000) -> None:
        """Save the model in Hugging Face's layout: config, safetensors, and the tokenizer that it was loaded with.

        Args:
            folder: the folder, which is created.
            largest: the most bytes of one file.
        """
        folder = os.fspath(folder)
        os.makedirs(folder, exist_ok=True)
        raw = dict(self.config.raw)
        kind = files.DTYPE_NAMES.get(np.dtype(weft.tree.leaves(self.params)[0].dtype))
        if kind is not None:
            raw["torch_dtype" if "torch_dtype" in raw else "dtype"] = kind
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(raw, file, indent=2, sort_keys=True)
        files.save_params(self.params, self.config, folder, largest)
        if self.folder is not None and os.path.abspath(self.folder) != os.path.abspath(folder):
            for name in _COMPANIONS:
                if os.path.isfile(path := os.path.join(self.folder, name)):
                    shutil.copyfile(path, os.path.join(folder, name))


def find_folder(name: str | os.PathLike[str]) -> str:
    """Return a local folder: the name itself, or the files of a repository by `huggingface_hub`."""
    path = os.fspath(name)
    if os.path.isdir(path):
        return path
    if path.count("/") == 1 and not path.startswith((".", "/")) and is_importable("huggingface_hub"):
        return str(hub.snapshot_download(path, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"]))
    raise ArgumentError(
        "A model must be a folder, or with the package huggingface_hub the name of a repository.", received=repr(path)
    )


def load(
    folder: str | os.PathLike[str],
    *,
    dtype: Any = None,
    sharding: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Model:
    """Load a model from a folder in Hugging Face's layout.

    Args:
        folder: a folder with `config.json` and safetensors files; a repository's name where the package
            `huggingface_hub` is installed.
        dtype: the dtype of floating-point parameters; by default that of the files.
        sharding: None for one device, a sharding for all arrays, or a function from the dotted name and the shape of an
            array to its sharding, such as `models.shard(mesh)`.
        progress: a function that is called after each array with the number of parameters that are loaded, and that of
            all.

    Returns:
        A `Model`.

    >>> import tempfile, weft
    >>> from weft import models
    >>> config = models.read_config({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_head": 2, "n_layer": 3})
    >>> folder = tempfile.mkdtemp()
    >>> models.Model(config, models.init(config, weft.random.key(0))).save(folder)
    >>> models.load(folder)
    Model(gpt2, 3 layers of 8, logits)
    """
    path = find_folder(folder)
    config = read_config(path)
    source = files.SafetensorsFolder(path)
    params = files.load_params(config, source, path, dtype, sharding, progress)
    return Model(config, params, path)
