"""What CIFAR-10 and CIFAR-100 have in common: an archive of pickled arrays, read without unpacking it."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence

import numpy as np

from weft.errors import FileFormatError
from weft.keras.core.config import image_data_format
from weft.keras.datasets.files import CIFAR_FILES, find, unpickle


def read(name: str, members: Sequence[str], labels: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Read images and labels from members of an archive."""
    file = find(name, origin=CIFAR_FILES)
    found = []
    try:
        with tarfile.open(file) as archive:
            for member in members:
                opened = archive.extractfile(member)
                if opened is None:
                    raise KeyError(member)
                batch = unpickle(opened.read(), encoding="bytes")
                images = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32)
                if image_data_format() == "channels_last":
                    images = images.transpose(0, 2, 3, 1)
                found.append((images, np.asarray(batch[labels.encode()], np.uint8)[:, None]))
    except (tarfile.TarError, KeyError) as error:
        raise FileFormatError(f"This is not the archive {name}.", received=f"{file}: {error}") from error
    return found
