"""Datasets of the files of a folder, with one folder a class."""

from __future__ import annotations

import functools
import pathlib
import wave
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.data import Loader
from weft.errors import ArgumentError, FileFormatError
from weft.keras.core.config import standardize_data_format
from weft.keras.core.seeds import make_default_seed
from weft.keras.numerics.shapes import sizes
from weft.keras.utils.images import read_image

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_LABEL_MODES = ("int", "categorical", "binary", None)


class FileDataset(Loader):
    """A loader of the files of a folder.

    Attributes:
        class_names: the classes in the order of their labels; None without labels.
        file_paths: the files.
    """

    class_names: list[str] | None
    file_paths: list[str]


class _Files:
    """Files and their labels, read one by one."""

    def __init__(self, paths: list[str], labels: np.ndarray | None, read: Callable[[str], Any]) -> None:
        self.paths, self.labels, self.read = paths, labels, read

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        value = self.read(self.paths[index])
        return value if self.labels is None else (value, self.labels[index])


def _class_files(
    directory: Any, endings: tuple[str, ...], labels: Any, class_names: Sequence[str] | None, follow_links: bool
) -> tuple[list[str], np.ndarray | None, list[str]]:
    """Return the files of a folder in order, their labels, and the names of the classes."""
    root = pathlib.Path(directory)
    if not root.is_dir():
        raise ArgumentError("`directory` must be a folder.", received=str(directory))
    inferred = isinstance(labels, str) and labels == "inferred"
    if not inferred and labels is not None and not isinstance(labels, list | tuple | np.ndarray):
        raise ArgumentError(
            "`labels` must be 'inferred', None, or a list with a label for each file.", received=f"{labels!r}"
        )
    folders = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    names = folders if inferred else []
    if class_names is not None:
        if not inferred:
            raise ArgumentError("`class_names` needs labels that are 'inferred' from folders.", received=f"{labels=}")
        if not set(class_names) <= set(folders):
            raise ArgumentError("`class_names` must be names of the folders.", received=f"{class_names}: {folders}")
        names = list(class_names)
    found: list[tuple[str, int]] = []
    for label, name in enumerate(names) if inferred else [(0, ".")]:
        files = sorted(_below(root / name, follow_links))
        found.extend((str(file), label) for file in files if file.suffix.lower() in endings)
    if not found:
        raise ArgumentError(
            f"There are no files that end in {', '.join(endings)}"
            + (" in folders, one folder a class." if inferred else "."),
            received=str(directory),
        )
    paths = [path for path, _ in found]
    if labels is None:
        return paths, None, names
    if inferred:
        return paths, np.array([label for _, label in found], "int32"), names
    listed = np.asarray(labels)
    if len(listed) != len(paths):
        raise ArgumentError(
            f"`labels` must have an entry for each of the {len(paths)} files.", received=f"{len(listed)} labels"
        )
    return paths, listed.astype("int32"), [str(label) for label in sorted(set(listed.tolist()))]


def _below(folder: pathlib.Path, follow_links: bool) -> list[pathlib.Path]:
    files: list[pathlib.Path] = []
    for path in folder.iterdir():
        if path.is_dir():
            if follow_links or not path.is_symlink():
                files.extend(_below(path, follow_links))
        else:
            files.append(path)
    return files


def _datasets(
    directory: Any,
    endings: tuple[str, ...],
    read: Callable[[str], Any],
    *,
    labels: Any,
    label_mode: str | None,
    class_names: Sequence[str] | None,
    batch_size: int | None,
    shuffle: bool,
    seed: int | None,
    validation_split: float | None,
    subset: str | None,
    follow_links: bool,
    verbose: bool,
    pad: Any = None,
) -> Any:
    """Return the loader of one subset of the files of a folder, or the loaders of both."""
    if label_mode not in _LABEL_MODES:
        raise ArgumentError(f"`label_mode` must be one of {_LABEL_MODES}.", received=f"{label_mode=}")
    if (validation_split is None) != (subset is None):
        raise ArgumentError(
            "`validation_split` and `subset` must be given together.", received=f"{validation_split=}, {subset=}"
        )
    if subset not in (None, "training", "validation", "both"):
        raise ArgumentError("`subset` must be 'training', 'validation' or 'both'.", received=f"{subset=}")
    if validation_split is not None and not 0 < validation_split < 1:
        raise ArgumentError("`validation_split` must be in (0, 1).", received=f"{validation_split=}")
    if validation_split is not None and shuffle and seed is None:
        raise ArgumentError(
            "Without a seed training and validation may have the same files.", fix=["seed=1", "shuffle=False"]
        )
    seed = make_default_seed() if seed is None else seed
    # Without labels the files of the folder itself belong to the dataset too.
    labels = None if label_mode is None else labels
    label_mode = None if labels is None else label_mode
    paths, indices, names = _class_files(directory, endings, labels, class_names, follow_links)
    if label_mode == "binary" and len(names) != 2:
        raise ArgumentError("label_mode='binary' needs exactly two classes.", received=f"{len(names)} classes: {names}")
    targets = None
    if label_mode is not None and indices is not None:
        targets = indices
        if label_mode == "binary":
            targets = indices[:, None].astype("float32")
        elif label_mode == "categorical":
            targets = np.eye(len(names), dtype="float32")[indices]
    order = np.arange(len(paths))
    if shuffle:
        np.random.RandomState(seed).shuffle(order)
    if verbose:
        print(f"Found {len(paths)} files" + (f" belonging to {len(names)} classes." if names else "."))

    def loader(chosen: np.ndarray, shuffled: bool) -> FileDataset:
        if not len(chosen):
            raise ArgumentError(
                "Training and validation must have a file each.", received=f"{len(paths)} files, {validation_split=}"
            )
        files = [paths[i] for i in chosen]
        source = _Files(files, None if targets is None else targets[chosen], read)
        # Elements of a loader without a size of batches are single samples, which need no padding.
        padding = None if batch_size is None else pad
        result = FileDataset(source, batch_size, shuffle=shuffled, seed=seed, pad=padding, workers=2)
        result.class_names, result.file_paths = names if labels is not None else None, files
        return result

    if validation_split is None:
        return loader(order, shuffle)
    count = int(validation_split * len(paths))
    training, validation = order[: len(paths) - count], order[len(paths) - count :]
    if subset == "both":
        return loader(training, shuffle), loader(validation, False)
    return loader(training, shuffle) if subset == "training" else loader(validation, shuffle)


def check_format(format: str) -> None:
    """Raise unless `format` is a dataset format of Keras."""
    if format not in ("tf", "grain"):
        raise ArgumentError("`format` must be 'tf' or 'grain'; the result is a loader anyway.", received=repr(format))


def image_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: tuple[int, int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str = "tf",
    verbose: bool = True,
) -> Any:
    """Load batches of images from a folder with one subfolder for each class. Pillow reads them.

    Args:
        directory: the folder.
        labels: "inferred" from the names of folders, None, or a list with one label a file, in the order of names.
        label_mode: "int", "categorical" (one-hot vectors), "binary", or None for no labels.
        class_names: the names of the folders in the order of their labels; in that of names by default.
        color_mode: "grayscale", "rgb" or "rgba".
        batch_size: images of a batch; None for single images.
        image_size: the rows and columns that all images get.
        shuffle: whether images are in another order in each epoch.
        seed: of the order, and of which images are for validation.
        validation_split: the part of the files that is for validation.
        subset: "training", "validation" or "both", if there is a `validation_split`.
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        follow_links: whether links to folders are followed.
        crop_to_aspect_ratio: whether to cut the largest centred part of the right proportions.
        pad_to_aspect_ratio: whether to add black borders, so that the proportions are right.
        data_format: "channels_last" or "channels_first"; None is the setting.
        format: accepted: the result is a loader of `weft.data`, whatever it says.
        verbose: whether to print how many files there are.

    Returns:
        A `weft.data.Loader` of pairs of images (floats from 0 to 255) and labels, or of images, with the attributes
        `class_names` and `file_paths`; a pair of them for both subsets.
    """
    check_format(format)
    rows, columns = sizes(image_size, 2, "image_size")
    read = functools.partial(
        read_image,
        color_mode=color_mode,
        size=(rows, columns),
        interpolation=interpolation,
        crop_to_aspect_ratio=crop_to_aspect_ratio,
        pad_to_aspect_ratio=pad_to_aspect_ratio,
        data_format=standardize_data_format(data_format),
    )
    return _datasets(
        directory,
        _IMAGES,
        read,
        labels=labels,
        label_mode=label_mode,
        class_names=class_names,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        validation_split=validation_split,
        subset=subset,
        follow_links=follow_links,
        verbose=verbose,
    )


def text_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "tf",
    verbose: bool = True,
) -> Any:
    """Load batches of texts from a folder with one subfolder for each class.

    Args:
        directory: the folder.
        labels: "inferred" from the names of folders, None, or a list with one label a file, in the order of names.
        label_mode: "int", "categorical" (one-hot vectors), "binary", or None for no labels.
        class_names: the names of the folders in the order of their labels; in that of names by default.
        batch_size: texts of a batch; None for single texts.
        max_length: how many characters of a text are read; all by default.
        shuffle: whether texts are in another order in each epoch.
        seed: of the order, and of which texts are for validation.
        validation_split: the part of the files that is for validation.
        subset: "training", "validation" or "both", if there is a `validation_split`.
        follow_links: whether links to folders are followed.
        format: accepted: the result is a loader of `weft.data`, whatever it says.
        verbose: whether to print how many files there are.

    Returns:
        A `weft.data.Loader` of pairs of strings and labels, or of strings; a pair of them for both subsets.
    """
    check_format(format)
    return _datasets(
        directory,
        (".txt",),
        functools.partial(_read_text, max_length=max_length, single=batch_size is None),
        labels=labels,
        label_mode=label_mode,
        class_names=class_names,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        validation_split=validation_split,
        subset=subset,
        follow_links=follow_links,
        verbose=verbose,
    )


def _read_text(path: str, max_length: int | None, single: bool) -> Any:
    text = pathlib.Path(path).read_text(encoding="utf-8")[:max_length]
    return text if single else np.array(text, dtype=object)


def audio_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    sampling_rate: int | None = None,
    output_sequence_length: int | None = None,
    ragged: bool = False,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    verbose: bool = True,
) -> Any:
    """Load batches of sounds (`.wav` files) from a folder with one subfolder for each class.

    Args:
        directory: the folder.
        labels: "inferred" from the names of folders, None, or a list with one label a file, in the order of names.
        label_mode: "int", "categorical" (one-hot vectors), "binary", or None for no labels.
        class_names: the names of the folders in the order of their labels; in that of names by default.
        batch_size: sounds of a batch; None for single sounds.
        sampling_rate: the rate that all files must have; None accepts any.
        output_sequence_length: how many values of a sound; those of the longest in the batch by default.
        ragged: must be False: shorter sounds are filled up with zeros.
        shuffle: whether sounds are in another order in each epoch.
        seed: of the order, and of which sounds are for validation.
        validation_split: the part of the files that is for validation.
        subset: "training", "validation" or "both", if there is a `validation_split`.
        follow_links: whether links to folders are followed.
        verbose: whether to print how many files there are.

    Returns:
        A `weft.data.Loader` of pairs of sounds, floats in [-1, 1) of shape (batch, time, channels), and labels.
    """
    if ragged:
        raise ArgumentError("`ragged` must be False: arrays of Weft are dense.", received="ragged=True")
    return _datasets(
        directory,
        (".wav",),
        functools.partial(_read_audio, rate=sampling_rate, length=output_sequence_length),
        labels=labels,
        label_mode=label_mode,
        class_names=class_names,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        validation_split=validation_split,
        subset=subset,
        follow_links=follow_links,
        verbose=verbose,
        pad=None if output_sequence_length is not None else _longest_first(label_mode, labels),
    )


def _longest_first(label_mode: str | None, labels: Any) -> Any:
    """Return the padding mode: sounds are padded to the longest of a batch, labels are not."""
    return "longest" if label_mode is None or labels is None else ("longest", None)


def _read_audio(path: str, rate: int | None, length: int | None) -> np.ndarray:
    try:
        with wave.open(path, "rb") as file:
            width, channels, own_rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise FileFormatError("The file must be a .wav file of integers.", received=f"{path}: {error}") from error
    if rate is not None and own_rate != rate:
        raise ArgumentError(
            f"The sampling rate of a file must be `sampling_rate`; the file has {own_rate} Hz.",
            received=f"{path}, sampling_rate={rate}",
        )
    if width == 1:
        values = np.frombuffer(data, "uint8").astype("float32") / 128 - 1
    elif width in (2, 4):
        values = np.frombuffer(data, f"<i{width}").astype("float32") / 2 ** (8 * width - 1)
    else:
        raise FileFormatError("Values of a .wav file must have 1, 2 or 4 bytes.", received=f"{path}: {width} bytes")
    sound = values.reshape(-1, channels)
    if length is None:
        return sound
    return np.pad(sound[:length], ((0, max(length - len(sound), 0)), (0, 0)))
