"""Models as programs that need neither the model's code nor Keras: files of `weft.export`, with the weights in them."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft import export as programs
from weft.checkpointing import tensor_file
from weft.errors import ArgumentError, InconclusiveDimensionOperation, NotSupportedError, publish as _publish
from weft.keras.core.config import floatx
from weft.keras.core.scope import StatelessScope
from weft.keras.core.together import write_once
from weft.keras.graph.tensor import KerasTensor
from weft.keras.layers.core.exported import ENDING
from weft.keras.layers.signature import map_shapes

__all__ = ["ExportArchive"]

_FORMAT = "weft"
_ONNX = "onnx"
_LIBRARY = "library"
# Most rows of a batch that the functions of a library take: its sizes need a bound.
_MOST_ROWS = 16


class ExportArchive:
    """Functions over a model's variables, each written as a program of its own.

    Args:
        format: "weft": files of `weft.export`; or "library": one library for C (`weft.export.library`).

    Example:
        >>> import pathlib, tempfile
        >>> import weft
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        >>> archive = keras.export.ExportArchive()
        >>> archive.track(model)
        >>> serve = archive.add_endpoint("serve", model.call, [keras.InputSpec(shape=(None, 3), dtype="float32")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     archive.write_out(folder, verbose=False)
        ...     program = weft.export.deserialize((pathlib.Path(folder) / "serve.weft").read_bytes())
        >>> program.call(weft.numpy.ones((4, 3))).shape
        (4, 2)
    """

    def __init__(self, format: str = _FORMAT, **kwargs: Any) -> None:
        check_format(format, (_FORMAT, _LIBRARY))
        if kwargs:
            raise ArgumentError("ExportArchive has no such arguments.", received=", ".join(kwargs))
        self._format = format
        self._endpoints: dict[str, tuple[programs.Exported, int]] = {}

    def track(self, resource: Any) -> None:
        """Check that a layer or model, whose variables endpoints use, is built. Programs contain the values of all
        variables that they use, tracked or not.

        Args:
            resource: a layer or model.
        """
        if not getattr(resource, "built", True):
            raise ArgumentError(
                f"{type(resource).__name__} {resource.name} is not built, so it has no variables.", fix="call it first"
            )

    def add_endpoint(
        self, name: str, fn: Callable[..., Any], input_signature: Sequence[Any] | None = None, vjp_order: int = 0
    ) -> programs.Exported:
        """Add a function, with the present values of variables.

        Args:
            name: the name of the endpoint.
            fn: a function of arrays; what it writes to variables is forgotten.
            input_signature: for each argument an `InputSpec`, a `KerasTensor`, an array or a tree of these. A size of
                None is symbolic; the sizes of the first axes are one symbol, the number of rows.
            vjp_order: how often the program can be differentiated.

        Returns:
            The program.
        """
        if name in self._endpoints:
            raise ArgumentError(f"There is an endpoint {name} already.", fix="another name")
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ArgumentError(
                "The name of an endpoint must consist of letters, digits, '_', '.' and '-'.", received=repr(name)
            )
        if input_signature is None:
            raise ArgumentError("`input_signature` must be given.", fix="input_signature=[InputSpec(shape=...)]")
        program = export_function(fn, input_signature, name, self._format == _LIBRARY)
        self._endpoints[name] = (program, vjp_order)
        return program

    def write_out(self, filepath: str | os.PathLike[str], options: Any = None, verbose: bool = True) -> None:
        """Write a folder with a file for each endpoint, `<name>.weft`, or with the files of a library of the folder's
        name that has all endpoints.

        Args:
            filepath: the folder.
            options: None.
            verbose: whether to print what was written.
        """
        if not self._endpoints:
            raise ArgumentError("There is no endpoint to write.", fix="add_endpoint(name, fn, input_signature)")
        if options is not None:
            raise ArgumentError("write_out has no options.", received=repr(options))
        folder = pathlib.Path(filepath)
        if self._format == _LIBRARY:
            exported = {name: program for name, (program, _) in self._endpoints.items()}
            files = programs.library(exported, name=re.sub(r"\W", "_", folder.name)).save(folder)
            if verbose:
                print(f"Wrote {', '.join(map(str, files))}")
            return
        folder.mkdir(parents=True, exist_ok=True)
        for name, (program, vjp_order) in self._endpoints.items():
            write_program(program, folder / f"{name}{ENDING}", vjp_order, verbose)


def export_model(
    model: Any,
    filepath: str | os.PathLike[str],
    format: str = _FORMAT,
    verbose: bool | None = None,
    input_signature: Sequence[Any] | None = None,
    vjp_order: int = 0,
) -> None:
    """Implement `Model.export`."""
    check_format(format)
    if format != _FORMAT and vjp_order:
        raise ArgumentError(
            f"A model in the format {format} has no derivatives.",
            received=f"vjp_order={vjp_order}",
            fix='format="weft", or vjp_order=0',
        )
    signature = model_signature(model) if input_signature is None else input_signature

    def serve(*args: Any) -> Any:
        return model(*args, training=False)

    def write() -> None:
        if format == _LIBRARY:
            write_library(serve, signature, pathlib.Path(filepath), bool(verbose))
            return
        write_program(export_function(serve, signature, model.name), filepath, vjp_order, bool(verbose), format)

    write_once(os.fspath(filepath), model.variables, write)


def check_format(format: str, formats: Sequence[str] = (_FORMAT, _ONNX, _LIBRARY)) -> None:
    """Raise an error unless the format is one of those that can be written."""
    if format not in formats:
        raise NotSupportedError(
            f"The format of an export must be {' or '.join(map(repr, formats))}.",
            received=f"format={format!r}",
            fix='format="weft", which `weft.export.deserialize` reads',
        )


def model_signature(model: Any) -> list[Any]:
    """Return the types of a model's arguments."""
    graph = getattr(model.__dict__.get("_functional", model), "graph", None)
    if graph is not None:
        return [graph.input_structure]
    shapes = getattr(model, "_build_shapes", None)
    if not shapes:
        raise ArgumentError(
            f"The model {model.name} is not built, so the types of its inputs are not known.",
            fix=("call it first", "input_signature=[keras.InputSpec(shape=(None, 3))]"),
        )
    return [map_shapes(lambda shape: KerasTensor((None, *shape[1:]), floatx()), each) for each in shapes.values()]


def export_function(
    function: Callable[..., Any], signature: Sequence[Any], name: str, bounds_rows: bool = False
) -> programs.Exported:
    """Export a function of arrays as a program, for the types of a signature; with few rows if `bounds_rows`."""

    def run(*args: Any) -> Any:
        # Inside of the trace, so that what is written ends with it.
        with StatelessScope():
            return function(*args)

    run.__name__ = run.__qualname__ = name
    scope = programs.SymbolicScope((f"rows <= {_MOST_ROWS}",) if bounds_rows else ())
    is_spec = lambda leaf: hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    leaves, structure = weft.tree.flatten(tuple(signature), is_leaf=is_spec)
    types = [_argument_type(leaf, i, scope) for i, leaf in enumerate(leaves)]
    try:
        return programs.export(weft.jit(run))(*weft.tree.unflatten(structure, types))
    except InconclusiveDimensionOperation as error:
        raise ArgumentError(
            f"{name} needs a size that the signature leaves open: {error}",
            received=", ".join(f"{each.dtype}{list(each.shape)}" for each in types),
            fix="input_signature with that size as an integer",
        ) from error


def _argument_type(spec: Any, i: int, scope: programs.SymbolicScope) -> weft.ShapeDtypeStruct:
    """Return the type of an argument: the number of rows is one shared symbol, other open sizes have their own."""
    if not hasattr(spec, "shape") or spec.shape is None:
        raise ArgumentError(
            "A signature must consist of specs with shapes.", received=repr(spec), fix="InputSpec(shape=(None, 3))"
        )
    open_size = lambda axis: f"size_{i}_{axis}" if axis else "rows"
    names = [open_size(axis) if size is None else str(size) for axis, size in enumerate(spec.shape)]
    shape = programs.symbolic_shape(", ".join(names), scope=scope) if names else ()
    return weft.ShapeDtypeStruct(shape, floatx() if spec.dtype is None else spec.dtype)


def write_library(function: Callable[..., Any], signature: Sequence[Any], file: pathlib.Path, verbose: bool) -> None:
    """Write a function as a shared library, or a WebAssembly module, with what C or JavaScript needs beside it."""
    program = export_function(function, signature, re.sub(r"\W", "_", file.stem.removeprefix("lib")), bounds_rows=True)
    files = programs.library(program, target="wasm32" if file.suffix == ".wasm" else "host").write(file)
    if verbose:
        print(f"Wrote {', '.join(map(str, files))}")


def write_program(
    program: programs.Exported,
    filepath: str | os.PathLike[str],
    vjp_order: int = 0,
    verbose: bool = False,
    format: str = _FORMAT,
) -> None:
    """Write a program to a file, which is replaced once the new one is complete."""
    data = programs.onnx(program).serialize() if format == _ONNX else bytes(program.serialize(vjp_order))
    with tensor_file.replacing(os.fspath(filepath)) as out:
        out.write(data)
    if verbose:
        types = ", ".join(map(str, program.in_avals))
        print(f"Wrote {os.fspath(filepath)}: {program.fun_name}({types})")


_publish(__name__)
