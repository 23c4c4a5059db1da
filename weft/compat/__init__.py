"""Weft under JAX's name: after `install()`, `import jax` in this process means Weft.

    python -m weft.as_jax train.py             a script, or with -m a module, which imports jax
    weft.compat.install()                      the same in a running process, before anything imports jax
    pytest -p weft.compat.pytest_plugin        the tests of a library that is written for JAX

Modules, names and versions are those of one version of JAX, `jax_version()`; the file `manifest.txt` says for each name
what it means, or why there is nothing. A name without a counterpart can be imported; using it raises. With the
environment variable WEFT_COMPAT_LOG=1 the process prints at its end which such names were asked for.

Settings take JAX's defaults: an index that is out of bounds is clamped or dropped instead of being an error, and a
number that does not fit into 32 bits wraps, or becomes zero or infinite.
"""

from __future__ import annotations

import sys

from weft.base.errors.layout import show_jax_text
from weft.base.publish import publish as _publish
from weft.base.settings import config
from weft.compat.attributes import add_attributes
from weft.compat.finder import Finder, find_real_jax
from weft.compat.manifest import read_manifest
from weft.compat.report import REPORT, print_at_exit

__all__ = ["install", "is_installed", "jax_version", "report"]

# JAX's defaults, where Weft's are stricter.
DEFAULTS = {"checks": "off", "strict_indices": False, "strict_narrowing": False}


def install() -> None:
    """Make `import jax` and `import jaxlib` import Weft, from now on and for the whole process.

    Raises RuntimeError if the real JAX has been imported: the two would be mixed up. A second call does nothing.
    """
    if is_installed():
        return
    loaded = find_real_jax()
    if loaded:
        raise RuntimeError(
            f"weft.compat.install() came too late: the real {loaded[0]} is loaded already, and what imported it would "
            "go on using it. Install before any import of jax, or run the program by `python -m weft.as_jax`."
        )
    for name, value in DEFAULTS.items():
        config.update(name, value)
    add_attributes()
    show_jax_text()
    sys.meta_path.insert(0, Finder(read_manifest()))
    print_at_exit()


def is_installed() -> bool:
    """Return whether `import jax` imports Weft in this process."""
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


def jax_version() -> str:
    """Return the version of JAX whose names Weft provides."""
    return read_manifest().version


def report() -> str:
    """Return the report on names of JAX that were used but that Weft lacks."""
    return REPORT.text()


_publish(__name__)
