"""Files from the network, in a folder of their own."""

from __future__ import annotations

import hashlib
import os
import pathlib
import tarfile
import urllib.parse
import zipfile
from collections.abc import Sequence

from weft.errors import ArgumentError, FileFormatError
from weft.keras.datasets.files import download

_DIGESTS = {32: "md5", 64: "sha256"}


def get_file(
    fname: str | None = None,
    origin: str | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: str | Sequence[str] | None = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    force_download: bool = False,
) -> str:
    """Return the path of a file, downloaded if it is not in the cache.

    Args:
        fname: its name in the cache; the last part of `origin` by default.
        origin: its address.
        untar: the same as `extract`, for archives of `tar`.
        md5_hash: its checksum; an older name of `file_hash`.
        file_hash: its checksum: SHA-256, or MD5.
        cache_subdir: the folder in the cache.
        hash_algorithm: "sha256", "md5", or "auto" by the length of the checksum.
        extract: whether to extract an archive; then the path is that of a folder with its files.
        archive_format: "tar", "zip", a list of these, or "auto" for both.
        cache_dir: the cache, `$KERAS_HOME` or `~/.keras` by default.
        force_download: whether to download the file again.

    Returns:
        A path.

    Example:
        >>> import pathlib, tempfile
        >>> from weft import keras
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "words.txt").write_text("one two")
        >>> path = keras.utils.get_file(origin=(folder / "words.txt").as_uri(), cache_dir=folder / "cache")
        >>> pathlib.Path(path).read_text()
        'one two'
    """
    if origin is None:
        raise ArgumentError("`origin` must be the URL of the file.", received="origin=None")
    name = fname or os.path.basename(urllib.parse.urlparse(origin).path)
    if not name:
        raise ArgumentError("The address has no file name: give `fname`.", received=f"{origin=}")
    wanted = file_hash or md5_hash
    home = pathlib.Path(cache_dir or os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras")
    extract = extract or untar
    target = home / cache_subdir / name
    file = target.with_name(f"{target.name}_archive") if extract else target
    if force_download or not file.is_file() or not _fits(file, wanted, hash_algorithm):
        file.parent.mkdir(parents=True, exist_ok=True)
        download(origin, file, name, lambda path: _check(path, name, wanted, hash_algorithm), wanted)
    if not extract:
        return str(target)
    if force_download or not target.is_dir() or not any(target.iterdir()):
        _extract(file, target, archive_format)
    return str(target)


def _digest(file: pathlib.Path, wanted: str, algorithm: str) -> str:
    if algorithm == "auto":
        algorithm = _DIGESTS.get(len(wanted), "sha256")
    if algorithm not in _DIGESTS.values():
        raise ArgumentError("`hash_algorithm` must be 'sha256', 'md5' or 'auto'.", received=f"{algorithm!r}")
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, algorithm).hexdigest()


def _fits(file: pathlib.Path, wanted: str | None, algorithm: str) -> bool:
    return wanted is None or _digest(file, wanted, algorithm) == wanted


def _check(file: pathlib.Path, name: str, wanted: str | None, algorithm: str) -> None:
    if wanted is not None and (found := _digest(file, wanted, algorithm)) != wanted:
        raise FileFormatError(
            f"{name} has another checksum: it is incomplete, damaged, or another file.",
            received=f"checksum {found}, expected {wanted}",
        )


def _extract(archive: pathlib.Path, target: pathlib.Path, archive_format: str | Sequence[str] | None) -> None:
    """Extract an archive; members whose path leads outside of the folder are refused."""
    formats = ("tar", "zip") if archive_format == "auto" else archive_format
    formats = (formats,) if isinstance(formats, str) else formats or ()
    if "tar" in formats and tarfile.is_tarfile(archive):
        with tarfile.open(archive) as opened:
            opened.extractall(target, filter="data")
    elif "zip" in formats and zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened_zip:
            for member in opened_zip.namelist():
                if not (target / member).resolve().is_relative_to(target.resolve()):
                    raise FileFormatError("A member of an archive leads outside of its folder.", received=member)
            opened_zip.extractall(target)
    else:
        raise FileFormatError(f"This is no archive of the formats {', '.join(formats)}.", received=str(archive))
