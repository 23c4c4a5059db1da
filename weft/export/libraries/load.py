"""Loading of shared libraries in Python, without the compiler."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes, tree
from weft.base.errors import ArgumentError, FailedCheckError, FileFormatError
from weft.base.forks import in_child
from weft.base.source import user_line
from weft.checkpointing import tensor_file
from weft.export.libraries.header import FIRST_CHECK
from weft.export.libraries.signature import Signature, Tensor, read_description
from weft.export.symbolic import SymbolicScope, sizes_of_call
from weft.export.trees import from_json
from weft.ir.types import array_type

_POINTER = ctypes.c_void_p


class LoadedFunction:
    """Function of a loaded library. It takes and returns NumPy arrays, in the trees of the function it was made of.

    Named tuples that were not registered (`register_namedtuple_serialization`) are tuples in its results.
    Arguments of another memory layout are copied; donated ones always are, so that callers keep their arrays.

    Args:
        signature: the signature.
        library: the library.
        constants: arrays of its arguments that are constants, by name.
    """

    def __init__(self, signature: Signature, library: ctypes.CDLL, constants: Mapping[str, np.ndarray]) -> None:
        self.signature = signature
        self._library = library
        try:
            self._run, self._message = (getattr(library, f"{signature.name}_{part}") for part in ("run", "message"))
        except AttributeError:
            raise FileFormatError(f"A library that describes {signature.name} must define it.") from None
        self._run.argtypes, self._run.restype = [_POINTER] * 4, ctypes.c_int32
        self._message.argtypes, self._message.restype = [ctypes.c_int32], ctypes.c_char_p
        self._in_tree, self._out_tree = from_json(signature.in_tree), from_json(signature.out_tree)
        self._inputs = [t for t in signature.arguments if not t.constant]
        self._constants = [constants.get(t.name) for t in signature.arguments if t.constant]
        if any(c is None for c in self._constants):
            names = ", ".join(t.name for t in signature.arguments if t.constant and t.name not in constants)
            raise ArgumentError(f"The library needs its constants {names}.", fix="load(path, constants=file)")
        bounds = [c for s in signature.sizes for c in (f"{s.name} >= {s.low}", f"{s.name} <= {s.high}")]
        self._scope = SymbolicScope(bounds)
        self._types = [array_type(self._shape(t), _dtype(t)) for t in self._inputs]

    @property
    def __name__(self) -> str:
        return self.signature.name

    def _shape(self, tensor: Tensor) -> tuple[Any, ...]:
        return self._scope.shape(", ".join(map(str, tensor.shape))) if tensor.shape else ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        leaves = self._flatten(args, kwargs)
        arrays = [self._convert(leaf, t) for leaf, t in zip(leaves, self._inputs, strict=True)]
        types = [array_type(a.shape, a.dtype) for a in arrays]
        paths = [t.name for t in self._inputs]
        sizes = sizes_of_call(self.signature.name, self._types, types, lambda: paths)
        by_name = {symbol.name: int(size) for symbol, size in sizes.items()}
        operands = [*arrays, *self._constants]
        results = [self._result(t, operands, sizes) for t in self.signature.results]
        self._call(operands, results, [by_name[s.name] for s in self.signature.sizes])
        return tree.unflatten(self._out_tree, results)

    def _flatten(self, args: Any, kwargs: Any) -> list[Any]:
        leaves, structure = tree.flatten((args, kwargs))
        fits = structure == self._in_tree or not self.signature.exact_trees
        if not fits or len(leaves) != len(self._inputs):
            raise ArgumentError(
                f"Arguments of {self.signature.name} must have the structure of those that the library was made for.",
                received=f"{len(leaves)} arrays in {structure}",
                fix=", ".join(f"{t.name}: {t.dtype}{t.shape_text}" for t in self._inputs),
                at=user_line(),
            )
        return leaves

    def _convert(self, leaf: Any, tensor: Tensor) -> np.ndarray:
        array = np.asarray(leaf, _dtype(tensor)) if type(leaf) in (bool, int, float, complex) else np.asarray(leaf)
        if tensor.donated:
            return np.array(array, order="C")
        array = np.ascontiguousarray(array).reshape(array.shape)
        return array if array.ctypes.data % max(array.dtype.alignment, 1) == 0 else array.copy()

    def _result(self, tensor: Tensor, operands: Sequence[Any], sizes: Mapping[Any, Any]) -> np.ndarray:
        if tensor.alias is not None:
            donor: np.ndarray = operands[tensor.alias]
            return donor
        shape = [d if isinstance(d, int) else int(d.substitute(dict(sizes))) for d in self._shape(tensor)]
        return np.empty(shape, _dtype(tensor))

    def _call(self, operands: Sequence[Any], results: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
        workspace = np.empty(max(self.signature.workspace_bytes, 1), np.uint8)
        tables = [(_POINTER * max(len(some), 1))(*(a.ctypes.data for a in some)) for some in (operands, results)]
        numbers = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        status = self._run(*tables, workspace.ctypes.data, numbers)
        if status:
            text = self._message(status).decode(errors="replace")
            kind = FailedCheckError if status >= FIRST_CHECK else ArgumentError
            raise kind(text, received=f"status {status} of {self.signature.name}", at=user_line())

    def __repr__(self) -> str:
        arguments, results = (
            ", ".join(f"{t.name}: {t.dtype}{t.shape_text}" for t in some)
            for some in (self._inputs, self.signature.results)
        )
        return f"<library function {self.signature.name}({arguments}) -> {results}>"


class LoadedLibrary:
    """Shared library in memory: its functions are attributes, and a call is that of the first one.

    Args:
        functions: the functions by name.
        properties: properties from the description of the library, such as its target.
    """

    def __init__(self, functions: Mapping[str, LoadedFunction], properties: Mapping[str, Any]) -> None:
        self.functions, self.properties = dict(functions), dict(properties)

    def __getattr__(self, name: str) -> LoadedFunction:
        try:
            return self.__dict__["functions"][name]
        except KeyError:
            raise AttributeError(f"The library has no function {name!r}.") from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the first function."""
        return next(iter(self.functions.values()))(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<library of {', '.join(map(repr, self.functions.values()))}>"


def load(path: str | os.PathLike[str], constants: str | os.PathLike[str] | None = None) -> LoadedLibrary:
    """Load a shared library that `library` made. The compiler is not needed, and is not imported.

    Args:
        path: the file, such as `libf.so`.
        constants: the safetensors file with its constants, if they are separate; by default the one beside it.

    Returns:
        An object with the functions as attributes. Called itself, it runs the first one.

    >>> import tempfile, weft, weft.numpy as np
    >>> f = weft.export.library(lambda x: x + 1, weft.ShapeDtypeStruct((3,), np.float32), name="f")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = f.save(folder)
    ...     found = [path for path in files if path.suffix == ".so"]  # if there is a linker
    ...     y = weft.export.load(found[0])(np.ones(3)) if found else np.full(3, 2)
    >>> print(y)
    [2. 2. 2.]
    """
    file = os.path.abspath(os.fspath(path))
    try:
        library = ctypes.CDLL(file)
    except OSError as error:
        raise FileFormatError(f"A library must be a shared library of this machine: {error}.") from None
    describe: Any = getattr(library, "weft_library", None)
    if describe is None:
        raise FileFormatError("A library must have been made by weft.export.library.", received=file)
    describe.argtypes, describe.restype = [], ctypes.c_char_p
    properties, signatures = read_description(describe())
    if properties.get("threads"):
        _start_threads(library, str(properties["name"]))
    held = _read_constants(file, constants, signatures)
    return LoadedLibrary({s.name: LoadedFunction(s, library, held) for s in signatures}, properties)


def _start_threads(library: ctypes.CDLL, name: str) -> None:
    """Start the threads of a library: as many as can run at once. A forked process has none of them."""
    start, reset = library[f"{name}_pool_start"], library[f"{name}_pool_reset"]
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    start(ctypes.c_int32(count - 1))
    in_child(reset)


def _read_constants(
    file: str, asked: str | os.PathLike[str] | None, signatures: Sequence[Signature]
) -> dict[str, np.ndarray]:
    """Return the constants that the functions take as arguments."""
    wanted = {t.name: t for s in signatures for t in s.arguments if t.constant}
    if not wanted:
        return {}
    folder, name = os.path.split(file)
    beside = os.path.join(folder, os.path.splitext(name.removeprefix("lib"))[0] + ".safetensors")
    source = beside if asked is None else os.fspath(asked)
    data = tensor_file.map_file(source)
    header = tensor_file.read_header(data, source)
    found = {}
    for key, tensor in wanted.items():
        if key not in header.entries:
            raise FileFormatError(f"The file of constants must have {key}.", received=source)
        array = np.ascontiguousarray(tensor_file.read_array(data, header.entries[key], source))
        if array.nbytes != tensor.bytes or math.prod(array.shape) != math.prod(map(int, tensor.shape)):
            raise FileFormatError(f"The constant {key} must be {tensor.dtype}{tensor.shape_text}.", received=source)
        found[key] = array
    return found


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    return dtypes.storage(dtypes.as_dtype(tensor.dtype))
