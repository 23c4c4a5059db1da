"""Files of models: a zip archive with the architecture as JSON and the weights, never with code."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from weft.checkpointing import tensor_file
from weft.errors import ArgumentError, FileFormatError
from weft.keras.core import registry
from weft.keras.core.config import version
from weft.keras.core.together import write_once
from weft.keras.saving import limits, weights
from weft.keras.saving.paths import saved_objects, saved_variables
from weft.keras.saving.shards import SHARDED, read_shards, write_shards

CONFIG, METADATA, ASSETS = "config.json", "metadata.json", "assets/"
# The weights, where h5py is installed and where it is not.
HDF5, SAFETENSORS = "model.weights.h5", "model.weights.safetensors"


def save_model(
    model: Any, filepath: str | os.PathLike[str], overwrite: bool = True, zipped: bool | None = None
) -> None:
    """Writes a model to a file: architecture, weights, the arguments of `compile` and the state of the optimizer.

    With h5py installed it is a file that Keras 3 opens; else weights are safetensors, which Weft reads anywhere. Of
    processes that have the model's variables together all call it, and one writes.

    Args:
        model: the model.
        filepath: the file, whose name ends in ".keras". It is replaced once the new one is complete.
        overwrite: whether an existing file may be replaced.
        zipped: True or None; there are no folders.

    Example:
        >>> import tempfile
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.keras")
        ...     keras.models.load_model(f"{folder}/model.keras").count_params()
        8
    """
    if zipped is False:
        raise ArgumentError("A model is saved to one file.", received="zipped=False", fix="leave `zipped` out")
    if not getattr(model, "built", False):
        raise ArgumentError(
            f"Model {model.name} has no weights yet: it is built by its first call.",
            fix=["call it or `fit` it before", "call `model.build(input_shape)`"],
        )
    write_once(str(filepath), saved_variables(model), lambda: _write_model(model, filepath, overwrite))


def _write_model(model: Any, filepath: str | os.PathLike[str], overwrite: bool) -> None:
    file = _target(filepath, ".keras", overwrite)
    config = json.dumps(registry.serialize_keras_object(model), default=_plain).encode()
    found, names = weights.weights_of(model), weights.names_of(model)
    hdf5 = weights.has_h5py()
    content = weights.to_hdf5(found, names) if hdf5 else weights.to_safetensors(found, names)
    about = {
        "keras_version": version(),
        "date_saved": datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S"),
        "weights": HDF5 if hdf5 else SAFETENSORS,
    }
    with tensor_file.replacing(file) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(METADATA, json.dumps(about))
        archive.writestr(CONFIG, config)
        archive.writestr(about["weights"], content)
        for name, data in _assets(model).items():
            archive.writestr(ASSETS + name, data)


def load_model(
    filepath: str | os.PathLike[str],
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """Reads a model from a file that `save_model` or Keras 3 wrote.

    Args:
        filepath: the file.
        custom_objects: classes and functions by name, besides those that are registered.
        compile: whether the model is compiled as it was, with the state of its optimizer.
        safe_mode: False accepts lambdas, whose code is in the file: only for files whose author you trust.

    Returns:
        The model.

    Example:
        >>> import tempfile
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.keras")
        ...     again = keras.models.load_model(f"{folder}/model.keras")
        >>> bool((again.layers[0].kernel.numpy() == model.layers[0].kernel.numpy()).all())
        True
    """
    file = os.fspath(filepath)
    if not os.path.isfile(file):
        raise ArgumentError(f"There is no file {file}.", fix="pass the path of a .keras file")
    with _opened(file) as archive:
        config = _json(archive, CONFIG, file)
        if not isinstance(config, dict):
            raise FileFormatError(f"{file}: {CONFIG} describes no model.", received=type(config).__name__)
        if not compile:
            config.pop("compile_config", None)
        try:
            model = registry.deserialize_keras_object(config, custom_objects, safe_mode=safe_mode)
        except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise FileFormatError(
                f"{file}: {CONFIG} describes no model: {type(error).__name__}: {error}.",
                fix="obtain a new copy; if classes of your own are in it, look at their `from_config`",
            ) from error
        names = archive.namelist()
        member = next((name for name in (HDF5, SAFETENSORS) if name in names), None)
        if member is None:
            raise FileFormatError(f"{file} has no weights ({HDF5} or {SAFETENSORS}).", received=", ".join(names[:10]))
        found = weights.from_bytes(_content(archive, member, file, limits.MOST_BYTES), member, file)
        if not hasattr(model, "weights"):
            raise FileFormatError(f"{file}: {CONFIG} describes a {type(model).__name__}, which is no model.")
        _load_assets(model, archive, file)
    weights.assign(model, found, file, optional=() if compile else ("optimizer",))
    return model


def save_weights(
    model: Any, filepath: str | os.PathLike[str], overwrite: bool = True, max_shard_size: float | None = None
) -> None:
    """Writes the weights of a model, and the state of its optimizer, to a file, or to several.

    Args:
        model: the model.
        filepath: the file: "....weights.h5" (h5py is needed), which Keras reads too, or "....safetensors". With
            `max_shard_size` it is "....weights.json", which says in which files beside it weights are.
        overwrite: whether an existing file may be replaced.
        max_shard_size: how large a file may be, in gigabytes; None: there is one.
    """
    write_once(
        str(filepath), saved_variables(model), lambda: _write_weights(model, filepath, overwrite, max_shard_size)
    )


def _write_weights(model: Any, filepath: str | os.PathLike[str], overwrite: bool, max_shard_size: float | None) -> None:
    endings = (".weights.h5", ".safetensors") if max_shard_size is None else (SHARDED,)
    file = _target(filepath, endings, overwrite)
    if not file.endswith(".safetensors") and not weights.has_h5py():
        raise ArgumentError(
            "Weights are written to HDF5 by h5py, which is not installed.",
            fix=["pip install 'weft[keras]'", "save to a file whose name ends in .safetensors"],
        )
    found, names = weights.weights_of(model), weights.names_of(model)
    if max_shard_size is not None:
        write_shards(found, names, file, max_shard_size)
        return
    write = weights.to_hdf5 if file.endswith(".h5") else weights.to_safetensors
    with tensor_file.replacing(file) as out:
        out.write(write(found, names))


def load_weights(model: Any, filepath: str | os.PathLike[str], skip_mismatch: bool = False) -> None:
    """Reads weights into a model that has been built.

    Args:
        model: the model.
        filepath: a file of `save_weights` or `save_model`, or of Keras 3; of several the "....weights.json".
        skip_mismatch: whether what does not fit is left as it is, with a warning.
    """
    file = os.fspath(filepath)
    if not os.path.isfile(file):
        raise ArgumentError(f"There is no file {file}.", fix="pass the path of a file with weights")
    if file.endswith(".keras"):
        with _opened(file) as archive:
            member = next((name for name in (HDF5, SAFETENSORS) if name in archive.namelist()), None)
            if member is None:
                raise FileFormatError(f"{file} has no weights ({HDF5} or {SAFETENSORS}).")
            found = weights.from_bytes(_content(archive, member, file, limits.MOST_BYTES), member, file)
    elif file.endswith(SHARDED):
        found = read_shards(file)
    elif file.endswith((".h5", ".safetensors")):
        found = weights.from_bytes(tensor_file.content(file), file, file)
    else:
        raise ArgumentError("Weights are in files .keras, .weights.h5, .weights.json or .safetensors.", received=file)
    weights.assign(model, found, file, skip_mismatch, optional=("optimizer",))


# ------------------------------------------------------------------------------------------------------------- archives


def _target(filepath: str | os.PathLike[str], endings: str | tuple[str, ...], overwrite: bool) -> str:
    """The path of a file to write."""
    file = os.path.realpath(filepath)
    if not file.endswith(endings):
        listed = endings if isinstance(endings, str) else " or ".join(endings)
        raise ArgumentError(f"The name of the file ends in {listed}.", received=os.fspath(filepath))
    if os.path.exists(file) and not overwrite:
        raise ArgumentError(f"The file {file} exists.", fix="pass overwrite=True, or another name")
    return file


def _plain(value: Any) -> Any:
    """What JSON has no form for."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ArgumentError("A config has only what JSON can hold.", received=repr(value))


@contextmanager
def _opened(file: str) -> Iterator[zipfile.ZipFile]:
    """An archive whose members are within the limits."""
    try:
        with zipfile.ZipFile(file) as archive:
            listed = archive.infolist()
            if len(listed) > limits.MOST_MEMBERS:
                raise FileFormatError(f"{file} has {len(listed)} members, more than {limits.MOST_MEMBERS}.")
            for info in listed:
                limits.check_size(info.file_size, f"{file}: {info.filename}")
                if info.file_size > limits.MOST_EXPANSION * max(info.compress_size, 1):
                    raise FileFormatError(f"{file}: {info.filename} is compressed beyond all measure.")
            yield archive
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, UnicodeDecodeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{file} is no archive of a model, or a damaged one: {error}.") from None


def _content(archive: zipfile.ZipFile, name: str, file: str, most: int) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise FileFormatError(f"{file} has no {name}: it is no file of a model.") from None
    limits.check_size(info.file_size, f"{file}: {name}", most)
    return archive.read(name)


def _json(archive: zipfile.ZipFile, name: str, file: str) -> Any:
    try:
        return json.loads(_content(archive, name, file, limits.MOST_TEXT))
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{file}: {name} is no JSON: {error}.") from None


# --------------------------------------------------------------------------------------------------------------- assets


def _assets(model: Any) -> dict[str, bytes]:
    """Files that layers write beside their variables (`save_assets(folder)`), by path."""
    found: dict[str, bytes] = {}
    for path, value in saved_objects(model).items():
        if hasattr(value, "save_assets"):
            with tempfile.TemporaryDirectory() as folder:
                value.save_assets(folder)
                for file in sorted(pathlib.Path(folder).rglob("*")):
                    if file.is_file():
                        found[f"{path}/{file.relative_to(folder).as_posix()}"] = file.read_bytes()
    return found


def _load_assets(model: Any, archive: zipfile.ZipFile, file: str) -> None:
    for path, value in saved_objects(model).items():
        prefix = f"{ASSETS}{path}/"
        names = [name for name in archive.namelist() if name.startswith(prefix) and not name.endswith("/")]
        if not names or not hasattr(value, "load_assets"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                inside = pathlib.PurePosixPath(name[len(prefix) :])
                if ".." in inside.parts or inside.is_absolute():
                    raise FileFormatError(f"{file}: {name} is outside of the archive.")
                target = pathlib.Path(folder, *inside.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_content(archive, name, file, limits.MOST_BYTES))
            value.load_assets(folder)
