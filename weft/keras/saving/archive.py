"""Files of models: a zip archive with the architecture as JSON and the weights, never with code; or HDF5, as of old."""

from __future__ import annotations

import datetime
import json
import os
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from weft.checkpointing import tensor_file
from weft.errors import ArgumentError, FileFormatError, WeftError
from weft.keras.core import budget, registry
from weft.keras.core.config import version
from weft.keras.core.together import write_once
from weft.keras.saving import assets, legacy, members, orbax, weights
from weft.keras.saving.members import Members
from weft.keras.saving.paths import saved_variables
from weft.keras.saving.shards import SHARDED, read_shards, write_shards

CONFIG, METADATA, ASSETS = "config.json", "metadata.json", "assets/"
# The weights, where h5py is installed and where it is not.
HDF5, SAFETENSORS = "model.weights.h5", "model.weights.safetensors"
LEGACY = (".h5", ".hdf5")


def save_model(
    model: Any,
    filepath: Any,
    overwrite: bool = True,
    zipped: bool | None = None,
    include_optimizer: bool = True,
    save_format: str | None = None,
) -> None:
    """Write a model to a file: architecture, weights, the arguments of `compile` and the state of the optimizer.

    With h5py installed it is a file that Keras 3 opens; else weights are safetensors, which Weft reads anywhere. Of
    processes that have the model's variables together all call it, and one writes.

    Args:
        model: the model. One that is not built is saved without weights, with a warning.
        filepath: the file, whose name ends in ".keras", or in ".h5" for the older format of Keras. It is replaced once
            the new one is complete. A binary file object gets an archive; with `zipped=False` it is a folder.
        overwrite: whether an existing file may be replaced.
        zipped: whether the members are in one archive (the default) or in a folder.
        include_optimizer: for ".h5": whether the arguments of `compile` and the optimizer's state are written.
        save_format: accepted; the name of the file decides.

    Example:
        >>> import tempfile
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.keras")
        ...     keras.models.load_model(f"{folder}/model.keras").count_params()
        8
    """
    if not getattr(model, "built", False):
        warnings.warn(
            f"Model {model.name} is saved before it is built, so that the file may have no weights. Call it on data, "
            "or call `model.build(input_shape)`, before it is saved.",
            stacklevel=3,
        )
    if hasattr(filepath, "write"):
        _write_archive(model, filepath)
        return
    if zipped is False:
        write_once(str(filepath), saved_variables(model), lambda: _write_folder(model, filepath, overwrite))
        return
    file = _target(filepath, (".keras", *LEGACY), overwrite)
    write_once(str(filepath), saved_variables(model), lambda: _write_file(model, file, include_optimizer))


def _write(file: str, content: bytes) -> None:
    with tensor_file.replacing(file) as out:
        out.write(content)


def _contents(model: Any) -> dict[str, bytes]:
    """Serialize a model to the members of a `.keras` archive, by name."""
    config = json.dumps(registry.serialize_sharing(model), default=_plain).encode()
    found, names = weights.collect_weights(model), weights.object_names(model)
    hdf5 = weights.has_h5py()
    about = {
        "keras_version": version(),
        "date_saved": datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S"),
        "weights": HDF5 if hdf5 else SAFETENSORS,
    }
    content = weights.to_hdf5(found, names) if hdf5 else weights.to_safetensors(found, names)
    files = {ASSETS + name: data for name, data in assets.collect(model).items()}
    return {METADATA: json.dumps(about).encode(), CONFIG: config, about["weights"]: content, **files}


def _write_archive(model: Any, out: Any) -> None:
    contents = _contents(model)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)


def _write_file(model: Any, file: str, include_optimizer: bool) -> None:
    if file.endswith(LEGACY):
        _write(file, legacy.to_bytes(model, include_optimizer))
        return
    with tensor_file.replacing(file) as out:
        _write_archive(model, out)


def _write_folder(model: Any, filepath: Any, overwrite: bool) -> None:
    folder = os.path.realpath(filepath)
    if folder.endswith(".keras"):
        raise ArgumentError(
            "The name of a folder cannot end in .keras.", received=f"{filepath}, zipped=False", fix="leave `zipped` out"
        )
    if not overwrite and os.path.exists(folder):
        raise ArgumentError(f"The folder {folder} already exists.", fix="pass overwrite=True, or another name")
    for name, data in _contents(model).items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, data)


def load_model(
    filepath: Any,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """Read a model from a file that `save_model` or Keras wrote.

    Args:
        filepath: a ".keras" file or a folder of its members; an ".h5" file, of Keras 2 too; a directory of
            `OrbaxCheckpoint`; or a binary file object with an archive.
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
    is_open = hasattr(filepath, "read")
    file = str(getattr(filepath, "name", "the file object")) if is_open else os.fspath(filepath)
    if not is_open:
        if os.path.isdir(file) and not os.path.isfile(os.path.join(file, CONFIG)):
            config = orbax.read_config(file)
            stored = orbax.stored_bytes(file)
            model = _construct_model(config, "its model_config", file, custom_objects, compile, safe_mode, stored)
            orbax.load(model, file)
            return model
        if not os.path.exists(file):
            raise ArgumentError(f"There is no file {file}.", fix="expected the path of a .keras or .h5 file")
        if file.endswith(LEGACY):
            data = tensor_file.content(file)
            return legacy.load_model(data, file, custom_objects, compile, safe_mode)
    with members.opened(filepath if is_open else file, file) as opened:
        member = _weights_member(opened)
        model = _construct_model(
            members.read_json(opened, CONFIG), CONFIG, file, custom_objects, compile, safe_mode, opened.size(member)
        )
        found = weights.from_bytes(members.read(opened, member), member, file)
        names = [name.removeprefix(ASSETS) for name in opened.names if name.startswith(ASSETS)]
        assets.load(model, names, lambda name: members.read(opened, ASSETS + name), file)
    weights.assign(model, found, file, optional=() if compile else ("optimizer",))
    return model


def _construct_model(
    config: Any,
    what: str,
    file: str,
    custom_objects: Mapping[str, Any] | None,
    compile: bool,
    safe_mode: bool,
    stored_bytes: int,
) -> Any:
    """Construct the model of a stored config; errors name the file."""
    if not isinstance(config, dict):
        raise FileFormatError(f"{file}: {what} describes no model.", received=type(config).__name__)
    if not compile:
        config.pop("compile_config", None)
    try:
        with budget.limit_variables(stored_bytes, file), registry.sharing():
            model = registry.deserialize_keras_object(config, custom_objects, safe_mode=safe_mode)
    except WeftError:
        raise
    except Exception as error:  # anything that a changed config makes a constructor do
        raise FileFormatError(
            f"{file}: {what} describes no model: {type(error).__name__}: {error}.",
            fix="obtain a new copy; if classes of your own are in it, look at their `from_config`",
        ) from error
    if not hasattr(model, "weights"):
        raise FileFormatError(f"{file}: {what} describes a {type(model).__name__}, which is no model.")
    return model


def _weights_member(opened: Members) -> str:
    member = next((name for name in (HDF5, SAFETENSORS) if name in opened.names), None)
    if member is None:
        listed = ", ".join(opened.names[:10])
        raise FileFormatError(f"{opened.file} has no weights ({HDF5} or {SAFETENSORS}).", received=listed)
    return member


def save_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    overwrite: bool = True,
    max_shard_size: float | None = None,
    objects_to_skip: Sequence[Any] | None = None,
) -> None:
    """Write the weights of a model, and the state of its optimizer, to a file, or to several.

    Args:
        model: the model.
        filepath: the file: "....weights.h5" (h5py is needed), which Keras reads too, or "....safetensors". With
            `max_shard_size` it is "....weights.json", which says in which files beside it weights are.
        overwrite: whether an existing file may be replaced.
        max_shard_size: how large a file may be, in gigabytes; None: there is one.
        objects_to_skip: layers and other objects whose weights are left out.
    """
    skip = list(objects_to_skip or ())
    write_once(
        str(filepath), saved_variables(model), lambda: _write_weights(model, filepath, overwrite, max_shard_size, skip)
    )


def _write_weights(
    model: Any, filepath: str | os.PathLike[str], overwrite: bool, max_shard_size: float | None, skip: list[Any]
) -> None:
    endings = (".weights.h5", ".safetensors") if max_shard_size is None else (SHARDED,)
    file = _target(filepath, endings, overwrite)
    if not file.endswith(".safetensors") and not weights.has_h5py():
        raise ArgumentError(
            "Weights are written to HDF5 by h5py, which is not installed.",
            fix=["pip install 'weft-jit[keras]'", "save to a file whose name ends in .safetensors"],
        )
    found, names = weights.collect_weights(model, skip), weights.object_names(model, skip)
    if max_shard_size is not None:
        write_shards(found, names, file, max_shard_size)
        return
    write = weights.to_hdf5 if file.endswith(".h5") else weights.to_safetensors
    _write(file, write(found, names))


def load_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    skip_mismatch: bool = False,
    objects_to_skip: Sequence[Any] | None = None,
    by_name: bool | None = None,
) -> None:
    """Read weights into a model that has been built.

    Args:
        model: the model.
        filepath: a file of `save_weights` or `save_model`, or of Keras, that of whole ".h5" models too; of several
            files the "....weights.json"; or a directory of `OrbaxCheckpoint`.
        skip_mismatch: whether what does not fit is left as it is, with a warning.
        objects_to_skip: layers and other objects that stay as they are, for ".weights.h5" and ".safetensors".
        by_name: for ".h5" files of the older format: whether layers are found by their names, not in their order.
    """
    file = os.fspath(filepath)
    is_legacy = file.endswith(LEGACY) and not file.endswith(".weights.h5")
    if by_name is not None and not is_legacy:
        raise ArgumentError("`by_name` needs an .h5 file of the older format.", received=f"by_name={by_name}, {file}")
    if objects_to_skip is not None and not file.endswith((".weights.h5", ".safetensors", SHARDED)):
        raise ArgumentError("`objects_to_skip` needs a .weights.h5 or .safetensors file.", received=file)
    skip = list(objects_to_skip or ())
    if os.path.isdir(file) and not os.path.isfile(os.path.join(file, CONFIG)):
        orbax.load(model, file)
        return
    if not os.path.exists(file):
        raise ArgumentError(f"There is no file {file}.", fix="expected the path of a file with weights")
    if file.endswith(".keras") or os.path.isdir(file):
        with members.opened(file, file) as opened:
            member = _weights_member(opened)
            found = weights.from_bytes(members.read(opened, member), member, file)
    elif file.endswith(SHARDED):
        found = read_shards(file)
    elif file.endswith((*LEGACY, ".safetensors")):
        data = tensor_file.content(file)
        if file.endswith(LEGACY) and legacy.is_legacy(data, file):
            legacy.load_weights(model, data, file, skip_mismatch, bool(by_name))
            return
        found = weights.from_bytes(data, file, file)
    else:
        raise ArgumentError(
            "The name of a file with weights must end in .keras, .h5, .weights.json or .safetensors.", received=file
        )
    weights.assign(model, found, file, skip_mismatch, optional=("optimizer",), skip=skip)


def _target(filepath: str | os.PathLike[str], endings: tuple[str, ...], overwrite: bool) -> str:
    """Return the real path of a file to write; check its ending and that it may be overwritten."""
    file = os.path.realpath(filepath)
    if not file.endswith(endings):
        raise ArgumentError(f"The name of the file must end in {' or '.join(endings)}.", received=os.fspath(filepath))
    if os.path.exists(file) and not overwrite:
        raise ArgumentError(f"The file {file} already exists.", fix="pass overwrite=True, or another name")
    return file


def _plain(value: Any) -> Any:
    """Convert a value that JSON cannot represent."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ArgumentError("A config must have only what JSON can hold.", received=repr(value))
