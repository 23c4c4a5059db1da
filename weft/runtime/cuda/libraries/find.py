"""Search for NVIDIA's libraries: in their wheels, in a CUDA toolkit, or by the system's loader."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import NotSupportedError


@dataclass(frozen=True)
class Library:
    """Shared library: its name without `lib` and `.so`, its supported versions, newest first, and its wheel.

    `parts` must be loaded before it. Programs are compiled for libraries that are `planned`.
    """

    stem: str
    versions: tuple[int, ...]
    wheel: str
    parts: tuple[str, ...] = ()
    planned: bool = True


LIBRARIES = {
    "cublasLt": Library("cublasLt", (13, 12), "nvidia-cublas"),
    "cublas": Library("cublas", (13, 12), "nvidia-cublas", ("cublasLt",)),
    "cudnn": Library(
        "cudnn",
        (9,),
        "nvidia-cudnn-cu13",
        (
            "cudnn_graph",
            "cudnn_ops",
            "cudnn_cnn",
            "cudnn_adv",
            "cudnn_heuristic",
            "cudnn_engines_precompiled",
            "cudnn_engines_runtime_compiled",
        ),
    ),
    "cusolver": Library("cusolver", (12, 11), "nvidia-cusolver"),
    "cufft": Library("cufft", (12, 11), "nvidia-cufft"),
    "nccl": Library("nccl", (2,), "nvidia-nccl-cu13", planned=False),
}
# Folders of toolkits besides those of the environment.
TOOLKITS = ("/usr/local/cuda", "/opt/cuda")


def folders() -> Iterator[pathlib.Path]:
    """Yield the folders that may contain libraries, those of wheels first."""
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        yield from sorted(pathlib.Path(folder).glob("*/lib"), reverse=True)
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for folder in (*named, *TOOLKITS):
        yield from (pathlib.Path(folder, name) for name in ("lib64", "lib"))


@functools.cache
def find_path(name: str) -> pathlib.Path | None:
    """Find the file of a library; return None if it is in none of the folders."""
    wanted = LIBRARIES[name]
    files = [
        path for folder in folders() for path in folder.glob(f"lib{wanted.stem}.so.*") if _version(path) is not None
    ]
    for version in wanted.versions:
        for path in files:
            if _version(path) == version:
                return path
    return None


def _version(path: pathlib.Path) -> int | None:
    found = re.search(r"\.so\.(\d+)$", path.name)
    return int(found[1]) if found else None


@functools.cache
def try_load(name: str) -> Any:
    """Load a library; return None if that is impossible."""
    wanted, path = LIBRARIES[name], find_path(name)
    candidates = [path] if path is not None else [f"lib{wanted.stem}.so.{version}" for version in wanted.versions]
    for candidate in candidates:
        try:
            if path is not None:
                for part in wanted.parts:  # the library searches for them by name
                    for file in path.parent.glob(f"lib{part}.so.{_version(path)}"):
                        ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(candidate), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    return None


@functools.cache
def present() -> frozenset[str]:
    """Return the installed libraries for programs. Those in folders are not loaded for this."""
    planned = [name for name, library in LIBRARIES.items() if library.planned]
    return frozenset(name for name in planned if find_path(name) is not None or try_load(name) is not None)


def load(name: str) -> Any:
    """Load a library; raise an error that names its wheel if that is impossible."""
    found = try_load(name)
    if found is None:
        wheel = LIBRARIES[name].wheel
        raise NotSupportedError(
            f"NVIDIA's library {name} must be installed; it cannot be loaded.",
            fix=f"install weft-jit[cuda], or the wheel {wheel}",
        )
    return found
