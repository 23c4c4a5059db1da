"""A layer that is a program of a file."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from weft import export as programs
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.layers.layer import Layer

ENDING = ".weft"


class TFSMLayer(Layer):
    """A program that `Model.export` or `ExportArchive` wrote, as a layer without variables.

    The name is Keras', whose layer has programs of TensorFlow; here they are files of `weft.export`. Gradients with
    respect to its inputs are there if the program was exported with `vjp_order`.

    Args:
        filepath: the file, or the folder of an `ExportArchive`.
        call_endpoint: of a folder, the endpoint that is called.
        call_training_endpoint: of a folder, the endpoint that is called with `training=True`; the same where None.
        trainable: accepted: what is in a program does not train.
        name, dtype: as of every layer.

    Example:
        >>> import tempfile
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     model.export(file.name)
        ...     layer = keras.layers.TFSMLayer(file.name)
        >>> layer(keras.ops.ones((4, 3))).shape
        (4, 2)
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        call_endpoint: str = "serve",
        call_training_endpoint: str | None = None,
        trainable: bool = False,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        self.filepath = os.fspath(filepath)
        self.call_endpoint, self.call_training_endpoint = call_endpoint, call_training_endpoint
        self._program = read_program(filepath, call_endpoint)
        training = call_training_endpoint
        self._training_program = self._program if training is None else read_program(filepath, training)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Run the exported program."""
        return (self._training_program if training else self._program).call(inputs)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Raise an error: a model's file must not decide which other files are read."""
        raise NotSupportedError(
            "A TFSMLayer is not made from a config, since it would read a file that the config names.",
            received=f"filepath={config.get('filepath')!r}",
            fix="keras.layers.TFSMLayer(filepath)",
        )


def read_program(filepath: str | os.PathLike[str], endpoint: str = "serve") -> programs.Exported:
    """Read the program from a file of `Model.export`, or an endpoint from a folder of `ExportArchive`."""
    path = pathlib.Path(filepath)
    if path.is_dir():
        if (path / "saved_model.pb").exists():
            raise NotSupportedError(
                f"{path} is a SavedModel of TensorFlow, whose programs Weft does not run.",
                fix="a .keras file of the model, and `keras.models.load_model`",
            )
        found = sorted(each.stem for each in path.glob(f"*{ENDING}"))
        if endpoint not in found:
            listed = ", ".join(found) or "none"
            raise ArgumentError(f"{path} has no endpoint {endpoint!r}.", received=f"endpoints {listed}")
        path = path / f"{endpoint}{ENDING}"
    if not path.is_file():
        raise ArgumentError(f"There is no file {path}.", fix="a file that `model.export` wrote")
    return programs.deserialize(path.read_bytes())
