"""Libraries whose own test suites run on Weft's floors: where their tests are and what their names mean."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
BUILD = ROOT / "build" / "suites"


class Library(NamedTuple):
    """A peer library and the floor of Weft that takes its place."""

    name: str
    """Name that tests import."""
    package: str
    """Name of the distribution."""
    floor: str
    """Module of Weft that is searched for private names."""
    tests: str
    """Regular expression for paths of test files in the source distribution."""
    prefix: str
    """Folder of the source distribution that names of test files are relative to."""
    roots: tuple[tuple[str, str], ...]
    """Public modules of the peer and the modules of Weft that hold the same names, tried in order."""
    utilities: tuple[str, ...]
    """Modules that only tests use; they are executed from the peer's source distribution."""
    excluded: str = "$^"
    """Regular expression for paths of test files that need other libraries."""
    alone: str = "$^"
    """Regular expression for files that one process runs: names of their tests have addresses, so that others collect
    other names."""
    devices: int = 1
    """Number of CPU devices that the tests expect."""

    @property
    def folder(self) -> pathlib.Path:
        """Folder of everything that is prepared and measured for this library."""
        return BUILD / "floors" / self.name

    @property
    def table(self) -> pathlib.Path:
        """File with the names of the peer's modules, written by `surface.py`."""
        return self.folder / "names.json"


LIBRARIES = {
    library.name: library
    for library in (
        Library(
            name="keras",
            package="keras",
            floor="weft.keras",
            tests=r"_test\.py$",
            prefix="keras/src",
            excluded=r"backend/(tensorflow|torch|openvino)|integration_tests/tf|torch_(utils|data_loader_adapter)_test"
            r"|export/(litert|openvino|saved_model|tfsm|torch)\w*_test",
            alone=r"wrappers__sklearn_test",
            devices=8,
            roots=(("keras", "weft.keras"),),
            utilities=(
                "keras.src.testing",
                "keras.src.utils.module_utils",
                "keras.src.backend.common.backend_utils",
            ),
        ),
        Library(
            name="optax",
            package="optax",
            floor="weft.optim",
            tests=r"_test\.py$",
            prefix="optax",
            roots=(("optax", "weft.optim"),),
            utilities=("optax._src.test_utils",),
        ),
        Library(
            name="flax",
            package="flax",
            floor="weft.linen",
            tests=r"^linen/.*_test\.py$|^core/core_(frozen_dict|meta)_test|^struct_test",
            prefix="tests",
            roots=(
                ("flax.linen", "weft.linen"),
                ("flax.core.meta", "weft.modules.metadata"),
                ("flax.core.meta", "weft.modules.partitions"),
                ("flax.core", "weft.linen"),
                ("flax.core", "weft.modules.frozen"),
                ("flax.core", "weft.modules.metadata"),
                ("flax.core", "weft.modules.partitions"),
                ("flax.core", "weft.modules.scope"),
                ("flax.struct", "weft.modules.struct"),
                ("flax.training.train_state", "weft.linen.train_state"),
            ),
            utilities=(
                "flax.traverse_util",
                "flax.serialization",
                "flax.ids",
                "flax.io",
                "flax.jax_utils",
                "flax.typing",
                "flax.configurations",
                "flax.training.early_stopping",
                "flax.cursor",
            ),
            devices=8,
        ),
        Library(
            name="haiku",
            package="dm-haiku",
            floor="weft.haiku",
            tests=r"_test\.py$",
            prefix="haiku",
            excluded="jax2tf|integration/(doctest|descriptors)_test",  # examples and coverage of the peer's own files,
            roots=(("haiku", "weft.haiku"),),
            utilities=("haiku._src.test_utils", "haiku._src.integration"),
        ),
    )
}
