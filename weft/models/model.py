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
from weft.base.lazy import is_importable, load as load_module
from weft.errors import ArgumentError
from weft.models import files, tasks
from weft.models.config import Config
from weft.models.families import read_config, read_json
from weft.models.generation import Allowed, Decoding, Programs, check_context, check_tokens, pad_prompts, stream_tokens
from weft.models.gguf_files import GgufFile
from weft.models.once import once
from weft.models.preparation import prepare_images, read_settings
from weft.models.quantization import check_scheme, has_integers, quantize as quantize_params, quantize_leaf
from weft.models.sampling import Sampler
from weft.models.tokenizer import Tokenizer

# Files of a folder that a saved model takes over.
_COMPANIONS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "preprocessor_config.json",
    "modules.json",
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
        towers = ", ".join(f"{len(tower.kinds)} layers of {tower.width}" for tower in self.config.towers.values())
        return f"Model({self.config.family}, {towers or 'convolutions'}: {self.config.task})"

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

    def quantize(self, scheme: str, *, group: int = 64) -> Model:
        """Return the same model with integers and scales in place of matrices.

        Args:
            scheme: "int8" or "int4".
            group: the number of inputs that share a scale in int4.

        Returns:
            A `Model`, whose parameters are those of `models.quantize`.
        """
        return self.replace(quantize_params(self.params, scheme, group=group))

    @once
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the folder that the model was loaded from."""
        if self.folder is None:
            raise ArgumentError("A model without a folder has no tokenizer; load one with models.Tokenizer(folder).")
        return Tokenizer(self.folder, self.config.vocabulary)

    # ------------------------------------------------------------------------------------------------------ forward

    def apply(
        self, params: Any, *inputs: Any, mask: Any = None, types: Any = None, pieces: Any = None, remat: bool = False
    ) -> Any:
        """Compute what the model is for as a function of its parameters, for `grad` and `jit`.

        Args:
            params: a tree like `model.params`.
            inputs: those of a call, with a batch axis.
            mask: booleans (batch, tokens), false for padding.
            types: integers (batch, tokens) of the table of token types.
            pieces: integers (batch, tokens) that number the texts packed into a row of a decoder.
            remat: whether the backward pass recomputes the layers.

        Returns:
            What a call of the model returns.
        """
        return tasks.compute(self.config, params, *inputs, mask=mask, types=types, pieces=pieces, remat=remat)

    def __call__(self, *inputs: Any, mask: Any = None, types: Any = None) -> Any:
        """Compute what the model is for.

        Args:
            inputs: for a model of text integers (tokens) or (batch, tokens); for one of images numbers (batch,
                channels, height, width); texts and images for one that compares them; for a model with an encoder its
                source and the tokens of the decoder.
            mask: booleans like the tokens of the text or of the source, false for padding.
            types: integers of the table of token types.

        Returns:
            Logits of tokens with an axis for the vocabulary; logits of labels; states (batch, tokens, width) of a model
            without a head; or the logits (images, texts) of each pair.
        """
        arrays = [wnp.asarray(x) for x in inputs]
        needed = 2 if self.config.task in ("similarity", "sequence") else 1
        if len(arrays) != needed:
            raise ArgumentError(
                f"A call of this model needs {needed} arrays ({self.config.task}).", received=str(len(arrays))
            )
        for x in arrays:
            if np.dtype(x.dtype).kind in "iu" and not isinstance(x, weft.core.Tracer):
                check_tokens(np.asarray(x), self.config)
        mask, types = (None if x is None else wnp.asarray(x) for x in (mask, types))
        one = arrays[0].ndim == 1
        if one:
            arrays = [x[None] if x.ndim == 1 else x for x in arrays]
            mask, types = (None if x is None else x[None] for x in (mask, types))
        result = self._apply(self.params, *arrays, mask=mask, types=types)
        return result[0] if one and self.config.task != "similarity" else result

    @once
    def _apply(self) -> Callable[..., Any]:
        return weft.jit(functools.partial(tasks.compute, self.config))

    # ------------------------------------------------------------------------------------------------------ vectors

    def embed(self, texts: Any, mask: Any = None, *, pooling: str | None = None, normalize: bool = True) -> Any:
        """Return a vector for each text, for search and comparison.

        Args:
            texts: strings, or integers (batch, tokens).
            mask: booleans (batch, tokens), false for padding.
            pooling: "mean", "max", "cls" or "lasttoken"; by default that of the folder, else "mean". Models that
                compare texts with images have their own.
            normalize: whether vectors have length 1.

        Returns:
            Numbers (batch, width).
        """
        if isinstance(texts, str) or (isinstance(texts, (list, tuple)) and texts and isinstance(texts[0], str)):
            ids, mask = self.tokenizer.batch([texts] if isinstance(texts, str) else texts, self.config.context)
        else:
            ids = np.atleast_2d(np.asarray(texts))
            mask = np.ones(ids.shape, bool) if mask is None else np.asarray(mask, bool)
        check_tokens(ids, self.config)
        if self.config.task == "similarity":
            vectors = self._text_vectors(self.params, wnp.asarray(ids), None if mask.all() else wnp.asarray(mask))
        elif self.config.task in ("features", "token logits", "labels"):
            vectors = self._pool_program(self.params, wnp.asarray(ids), wnp.asarray(mask), pooling or self._pooling)
        else:
            raise ArgumentError("Vectors of texts need an encoder of text.", received=repr(self))
        return tasks.unit_vectors(vectors) if normalize else vectors

    def encode_images(self, images: Any, *, normalize: bool = True) -> Any:
        """Return a vector for each image, in the space of the vectors of texts.

        Args:
            images: numbers (batch, channels, height, width).
            normalize: whether vectors have length 1.

        Returns:
            Numbers (batch, width).
        """
        if self.config.task != "similarity":
            raise ArgumentError("Vectors of images need a model that compares them with texts.", received=repr(self))
        vectors = self._image_vectors(self.params, wnp.asarray(images))
        return tasks.unit_vectors(vectors) if normalize else vectors

    def prepare(self, images: Sequence[Any]) -> Any:
        """Resize and normalize images as the folder of the model says.

        Args:
            images: arrays (height, width, 3) of integers from 0 to 255.

        Returns:
            Numbers (batch, 3, height, width).
        """
        sizes = [tower.image for tower in self.config.towers.values() if tower.image]
        return prepare_images(images, {"size": sizes[0] if sizes else 224, **read_settings(self.folder)})

    @once
    def _text_vectors(self) -> Callable[..., Any]:
        return weft.jit(functools.partial(tasks.text_vectors, self.config))

    @once
    def _image_vectors(self) -> Callable[..., Any]:
        return weft.jit(functools.partial(tasks.image_vectors, self.config))

    @once
    def _pool_program(self) -> Callable[..., Any]:
        def pool(params: Any, ids: Any, mask: Any, pooling: str) -> Any:
            return tasks.pool_states(tasks.text_states(self.config, params, ids, mask), mask, pooling)

        return weft.jit(pool, static_argnames="pooling")

    @once
    def _pooling(self) -> str:
        path = os.path.join(self.folder or "", "1_Pooling", "config.json")
        settings = read_json(path) if self.folder and os.path.isfile(path) else {}
        names = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "lasttoken"}
        return next((own for name, own in names.items() if settings.get(f"pooling_mode_{name}")), "mean")

    # --------------------------------------------------------------------------------------------------- generation

    def stop_tokens(self, stop: int | Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the tokens that end a text.

        Args:
            stop: tokens to return, or None for those of `generation_config.json` or `config.json`.

        Returns:
            A tuple of integers.
        """
        if stop is None:
            stop = self._generation.get("eos_token_id", self.config.raw.get("eos_token_id"))
        if stop is None:
            return ()
        return (stop,) if isinstance(stop, int) else tuple(stop)

    @once
    def _generation(self) -> Mapping[str, Any]:
        path = os.path.join(self.folder or "", "generation_config.json")
        return read_json(path) if self.folder and os.path.isfile(path) else {}

    def start(self, prompts: Any, new: int, pad: int, source: Any = None, mask: Any = None, slack: int = 0) -> Decoding:
        """Run prompts, and return the state from which tokens are generated.

        Args:
            prompts: integers (tokens) or (batch, tokens), or a list of rows of different lengths; for a model with an
                encoder the first tokens of the decoder, or None for its start token.
            new: the most tokens that will be generated.
            pad: the token that fills shorter prompts.
            source: the input of the encoder, for a model with one.
            mask: booleans like the source, false for padding.
            slack: the most tokens that will be taken back at once.

        Returns:
            A `Decoding`.
        """
        config, cross = self.config, None
        if config.task not in ("next token", "sequence"):
            raise ArgumentError("A model that generates text must have a decoder.", received=repr(self))
        if (source is not None) != (config.task == "sequence"):
            raise ArgumentError("A source belongs to a model with an encoder, and to no other.", received=repr(self))
        if source is not None:
            source, mask = wnp.asarray(source), None if mask is None else wnp.asarray(mask)
            cross = self._cross(self.params, source, mask)
            prompts = np.full((source.shape[0], 1), config.get("start"), np.int32) if prompts is None else prompts
        ids, starts = pad_prompts(prompts, pad)
        check_tokens(ids, config)
        check_context(ids.shape[1], new, config)
        return Decoding(self.programs, self.params, ids, starts, new, slack, cross)

    @once
    def _cross(self) -> Callable[..., Any]:
        return weft.jit(functools.partial(tasks.cross_cache, self.config))

    def stream(
        self,
        prompts: Any = None,
        max_new_tokens: int = 128,
        *,
        source: Any = None,
        mask: Any = None,
        sampler: Sampler | None = None,
        key: Any = None,
        stop_tokens: int | Sequence[int] | None = None,
        stop: str | Sequence[str] = (),
        allowed: Allowed | None = None,
    ) -> Iterator[np.ndarray]:
        """Yield the tokens of all sequences as they come.

        Args:
            prompts: integers (tokens) or (batch, tokens), or a list of rows of different lengths; for a model with an
                encoder the first tokens of the decoder, by default its start token.
            max_new_tokens: the most tokens to generate.
            source: the input of the encoder: tokens (batch, tokens), or sound (batch, bins, frames).
            mask: booleans like the source, false for padding.
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
        ends = self.stop_tokens(stop_tokens)
        if sampler.is_random and key is None:
            raise ArgumentError("A sampler with a temperature needs a key.", fix="key=weft.random.key(0)")
        decoding = self.start(prompts, max_new_tokens, ends[0] if ends else 0, source, mask)
        key = random.key(0) if key is None else key
        tokens = stream_tokens(decoding, max_new_tokens, sampler, key, ends, allowed)
        texts = (stop,) if isinstance(stop, str) else tuple(stop)
        return self._until(tokens, texts, len(decoding.ids)) if texts else tokens

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

    def generate(self, prompts: Any = None, max_new_tokens: int = 128, **options: Any) -> np.ndarray:
        """Generate text after prompts.

        Args:
            prompts: integers (tokens) or (batch, tokens), or a list of rows of different lengths.
            max_new_tokens: the most tokens to generate.
            options: those of `stream`.

        Returns:
            The prompts, padded on the left, and the new tokens: integers (tokens) for one prompt without a batch axis,
            else (batch, tokens).
        """
        new = [found[:, None] for found in self.stream(prompts, max_new_tokens, **options)]
        if prompts is None:
            prompts = np.full((len(new[0]), 1), self.config.get("start"), np.int32)
        ends = self.stop_tokens(options.get("stop_tokens"))
        ids, _ = pad_prompts(prompts, ends[0] if ends else 0)
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
        if has_integers(self.params):
            raise ArgumentError(
                "A model must have floating-point parameters to be saved in Hugging Face's layout.",
                received="quantized parameters",
                fix="model.replace(models.dequantize(model.params)).save(folder)",
            )
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
        hub = load_module("huggingface_hub")
        return str(hub.snapshot_download(path, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"]))
    raise ArgumentError(
        "A model must be a folder, or with the package huggingface_hub the name of a repository.", received=repr(path)
    )


def load(
    folder: str | os.PathLike[str],
    *,
    dtype: Any = None,
    sharding: Any = None,
    quantize: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Model:
    """Load a model from a folder in Hugging Face's layout, or from a GGUF file.

    Args:
        folder: a folder with `config.json` and safetensors files; a repository's name where the package
            `huggingface_hub` is installed; a file that ends in .gguf where the package `gguf` is.
        dtype: the dtype of floating-point parameters; by default that of the files.
        sharding: None for one device, a sharding for all arrays, or a function from the dotted name and the shape of an
            array to its sharding, such as `models.shard(mesh)`.
        quantize: "int8" or "int4" to quantize each matrix as it is loaded, see `models.quantize`.
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
    Model(gpt2, 3 layers of 8: next token)
    """
    convert = None
    if quantize is not None:
        check_scheme(quantize, 64)
        convert = functools.partial(quantize_leaf, scheme=quantize)
    path = os.fspath(folder)
    source: files.Source
    if path.endswith(".gguf") and os.path.isfile(path):
        source = GgufFile(path)
        config = read_config(source.config)
    else:
        path = find_folder(path)
        config = read_config(path)
        source = files.SafetensorsFolder(path)
    params, config = files.load_params(config, source, path, dtype, sharding, progress, convert)
    return Model(config, params, path if os.path.isdir(path) else os.path.dirname(path))
