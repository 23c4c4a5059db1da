"""`library` and what it returns: compiled functions with their C header, to be saved and linked."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.api.jit import jit
from weft.api.jit_function import JitFunction
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError, NotSupportedError
from weft.base.lazy import lazy
from weft.checkpointing import tensor_file
from weft.export.exported import Exported, check_scopes, export_trace
from weft.export.libraries import cplusplus, header, javascript, linkers
from weft.export.libraries.archive import write_archive
from weft.export.libraries.programs import LibraryFunction, SeparateConstants
from weft.export.libraries.signature import Signature, Tensor, make_identifier, write_description

if TYPE_CHECKING:
    from weft.compiler.target.cpu import link, pool
    from weft.compiler.target.cpu.standalone import dispatch, interface, machines, system, unit
    from weft.compiler.target.llvm import module as llvm
else:
    link = lazy("weft.compiler.target.cpu.link")
    pool = lazy("weft.compiler.target.cpu.pool")
    dispatch = lazy("weft.compiler.target.cpu.standalone.dispatch")
    interface = lazy("weft.compiler.target.cpu.standalone.interface")
    machines = lazy("weft.compiler.target.cpu.standalone.machines")
    system = lazy("weft.compiler.target.cpu.standalone.system")
    unit = lazy("weft.compiler.target.cpu.standalone.unit")
    llvm = lazy("weft.compiler.target.llvm.module")

CONSTANTS = ("inline", "separate")


@dataclass(frozen=True)
class CompiledObject:
    """Object file: its name, its bytes, and the symbols that it defines."""

    name: str
    code: bytes
    symbols: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Library:
    """Compiled functions, which run without Python.

    Args:
        name: the name, with which files begin.
        target: the machine that it is for.
        triple: LLVM's name of that machine.
        objects: the object files.
        signatures: the signatures of its functions.
        constants: constants that are arguments, by name; empty where they are baked in.
        header: the text of the C header.
    """

    name: str
    target: str
    triple: str
    objects: tuple[CompiledObject, ...]
    signatures: tuple[Signature, ...]
    constants: Mapping[str, np.ndarray]
    header: str
    threads: bool = False
    lapack: bool = False

    @property
    def signature(self) -> Signature:
        """Signature of the first function."""
        return self.signatures[0]

    @property
    def workspace_bytes(self) -> int:
        """Bytes of a workspace that is large enough for each of its functions."""
        return max(signature.workspace_bytes for signature in self.signatures)

    @property
    def is_wasm(self) -> bool:
        """Whether it is for WebAssembly."""
        return self.triple.startswith("wasm")

    @property
    def cplusplus_header(self) -> str:
        """Text of the C++ header, which has functions of spans."""
        return cplusplus.write_header(self.name, self.signatures)

    def save(self, folder: str | os.PathLike[str], linker: str | None = None) -> list[pathlib.Path]:
        """Write the library to a folder, which is made if it does not exist.

        It writes object files, the headers for C and C++, and for constants that are separate a safetensors file. A
        static library is written for all machines but WebAssembly. With a linker (cc, clang, or that of the package
        ziglang) it also writes a shared library, or a WebAssembly module with an ES module that loads it.

        Args:
            folder: the folder.
            linker: the program that links; by default the first one that is found.

        Returns:
            The files that were written.

        >>> import tempfile, weft, weft.numpy as np
        >>> f = weft.export.library(lambda x: np.tanh(x), weft.ShapeDtypeStruct((3,), np.float32), name="f")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     names = [path.name for path in f.save(folder)]
        >>> names[:4]
        ['f.o', 'f.h', 'f.hpp', 'libf.a']
        """
        target = pathlib.Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        files: dict[str, bytes] = {each.name: each.code for each in self.objects}
        files[f"{self.name}.h"] = self.header.encode()
        files[f"{self.name}.hpp"] = self.cplusplus_header.encode()
        if self.is_wasm:
            files[f"{self.name}.mjs"] = javascript.write_module(f"lib{self.name}.wasm", self.signatures).encode()
            files[f"{self.name}.d.mts"] = javascript.write_types(self.name, self.signatures).encode()
        else:
            files[f"lib{self.name}.a"] = write_archive([(o.name, o.code, o.symbols) for o in self.objects])
        if self.constants:
            files[f"{self.name}.safetensors"] = self._constants_file()
        for name, content in files.items():
            (target / name).write_bytes(content)
        found = [target / name for name in files]
        if self._find_linker(linker) is not None:
            found.append(self.link(target / f"lib{self.name}.{self._suffix}", linker))
        return found

    def write(self, file: str | os.PathLike[str], linker: str | None = None) -> list[pathlib.Path]:
        """Link the library to a file, and write beside it what its users need: the C header, or for WebAssembly an ES
        module with its types.

        Args:
            file: the file, such as `model.so` or `model.wasm`.
            linker: the program that links; by default the first one that is found.

        Returns:
            The files that were written.
        """
        target = self.link(file, linker)
        texts = {f"{self.name}.h": self.header}
        if self.is_wasm:
            texts = {
                f"{self.name}.mjs": javascript.write_module(target.name, self.signatures),
                f"{self.name}.d.mts": javascript.write_types(self.name, self.signatures),
            }
        files = {name: text.encode() for name, text in texts.items()}
        if self.constants:
            files[f"{target.stem.removeprefix('lib')}.safetensors"] = self._constants_file()
        for name, content in files.items():
            (target.parent / name).write_bytes(content)
        return [target, *(target.parent / name for name in files)]

    def _constants_file(self) -> bytes:
        chunks = tensor_file.chunks(list(self.constants.items()))
        return b"".join(bytes(memoryview(chunk).cast("B")) for chunk in chunks)

    def link(self, file: str | os.PathLike[str], linker: str | None = None) -> pathlib.Path:
        """Link the library to a shared library or a WebAssembly module.

        Args:
            file: the file.
            linker: the program that links; by default the first one that is found.

        Returns:
            The file.
        """
        found, output = self._find_linker(linker), pathlib.Path(file)
        if found is None:
            raise ArgumentError(
                "A linker must be installed.",
                received=f"none for {self.triple}",
                fix="cc, clang, or pip install 'weft-jit[library]'",
            )
        with tempfile.TemporaryDirectory() as folder:
            objects = [os.path.join(folder, each.name) for each in self.objects]
            for path, each in zip(objects, self.objects, strict=True):
                pathlib.Path(path).write_bytes(each.code)
            if self.is_wasm:
                linkers.link_wasm(found, objects, str(output), self.exports)
            else:
                linkers.link_library(found, objects, str(output), output.name, self.threads, self.lapack)
        return output

    @property
    def _suffix(self) -> str:
        return "wasm" if self.is_wasm else "dylib" if "apple" in self.triple else "so"

    def _find_linker(self, asked: str | None) -> linkers.Linker | None:
        host = machines.find_machine("host").triple
        is_host = self.triple.split("-")[0] == host.split("-")[0] and ("linux" in host or self.triple == host)
        return linkers.find_linker(self.triple, is_host, asked)

    @property
    def exports(self) -> list[str]:
        """Names of the functions that it exports."""
        own = [f"{s.name}_{suffix}" for s in self.signatures for suffix in ("run", "message")]
        return [*own, interface.DESCRIPTION]

    def __repr__(self) -> str:
        size = sum(len(each.code) for each in self.objects)
        return f"<library {self.name} for {self.target}: {', '.join(s.name for s in self.signatures)}, {size} bytes>"


def library(
    f: Any,
    *specs: Any,
    name: str | None = None,
    target: str = "host",
    threads: bool = False,
    constants: str = "inline",
    lapack: str | None = None,
) -> Library:
    """Compile a function for given types to a library that runs without Python.

    The result computes the bits that `jit` computes on a machine with the same features, except that products of large
    matrices, factorizations and Fourier transforms are always computed by kernels of Weft. Donated arguments share
    their memory with results of their types. Sizes may be symbolic (`symbolic_shape`) if they have upper bounds. A
    function that calls Python, or has an operation without kernels, raises an error that names the line.

    Args:
        f: a function, the result of `jit` or `export`, or a dict of several: `{"step": (step, *specs)}`.
        *specs: for each argument a tree of arrays or `ShapeDtypeStruct`s; none for an export or a dict.
        name: the name of the library, an identifier of C; by default that of the function.
        target: "host", "x86-64" (levels v2 to v4, chosen at run time), "x86-64-v2", "x86-64-v3", "x86-64-v4",
            "aarch64", "riscv64" or "wasm32".
        threads: whether large kernels are shared by threads.
        constants: "inline" to store constants in the objects, "separate" for large ones as arguments, which `save`
            writes to a safetensors file.
        lapack: "system" to call BLAS and LAPACK, which users of the library link, as `jit` does; by default kernels of
            Weft factor matrices, and what has none (eigenvalues of general matrices) raises an error.

    Returns:
        The library.

    >>> import weft, weft.numpy as np
    >>> total = weft.export.library(lambda x: np.tanh(x).sum(), weft.ShapeDtypeStruct((4,), np.float32), name="total")
    >>> total.signature.arguments[0].shape, total.workspace_bytes
    ((4,), 0)
    """
    if constants not in CONSTANTS:
        raise ArgumentError("`constants` must be a place.", received=repr(constants), fix=" or ".join(CONSTANTS))
    if lapack not in (None, "system"):
        raise ArgumentError("`lapack` must be a library.", received=repr(lapack), fix='"system", or None')
    machine = machines.find_machine(target, lapack is not None)
    if lapack and machine.triple.startswith("wasm"):
        raise NotSupportedError("A library for WebAssembly must not need LAPACK.", received=f"lapack={lapack!r}")
    if threads and machine.triple.startswith("wasm"):
        raise NotSupportedError("A library for WebAssembly must have one thread.", received="threads=True")
    apart = SeparateConstants() if constants == "separate" else None
    functions = _collect(f, specs, name, apart, lapack is not None)
    own = make_identifier(name if name is not None else next(iter(functions)).name)
    if name is not None and name != own:
        raise ArgumentError("The name of a library must be an identifier of C.", received=repr(name), fix=repr(own))
    objects, signatures = _compile(own, functions, machine, threads, lapack is not None)
    text = header.write_header(own, signatures, _describe(machine, threads, lapack is not None), threads)
    held = {} if apart is None else apart.arrays
    return Library(own, target, machine.triple, objects, tuple(signatures), held, text, threads, lapack is not None)


def _describe(machine: Any, threads: bool, lapack: bool) -> list[str]:
    """Return lines for the header: the target, the bits, what is called, and variables."""
    bits = ["It computes the bits of jit on the same features and with this LAPACK."]
    if not lapack:
        bits = [
            "It computes the bits of jit on the same features; products of large matrices, factorizations and Fourier",
            "transforms are computed by kernels of Weft, where jit calls libraries.",
        ]
    variables = ["the level of the processor"] * (len(machine.targets) > 1) + ["the state of its threads"] * threads
    called = ["pthreads and the C library"] * threads + ["BLAS and LAPACK (-llapack -lblas)"] * lapack
    return [
        f"Target: {machine.triple}, {', '.join(level for level, _ in machine.targets)}.",
        *bits,
        f"It allocates no memory. It calls {', '.join(called) or 'no other library'}.",
        f"Its variables: {', '.join(variables) or 'none'}.",
    ]


def _collect(
    f: Any, specs: Sequence[Any], name: str | None, separate: SeparateConstants | None, lapack: bool
) -> list[LibraryFunction]:
    """Return the functions to compile, with their names."""
    if not isinstance(f, Mapping):
        exported, donated = _export(f, specs)
        return [LibraryFunction(name or make_identifier(exported.fun_name), exported, donated, separate, lapack)]
    if specs or not f:
        raise ArgumentError(
            "Several functions must have their types in the dict.",
            received=f"{len(f)} functions and {len(specs)} types",
            fix='library({"step": (step, *specs)})',
        )
    found = []
    for key, value in f.items():
        if key != make_identifier(str(key)):
            raise ArgumentError("The name of a function must be an identifier of C.", received=repr(key))
        parts = value if isinstance(value, tuple) else (value,)
        found.append(LibraryFunction(key, *_export(parts[0], parts[1:]), separate, lapack))
    return found


def _export(f: Any, specs: Sequence[Any]) -> tuple[Exported, tuple[int, ...]]:
    """Return the export of a function, and the leaves of its arguments that are donated."""
    if isinstance(f, Exported):
        if specs:
            raise ArgumentError("An export has its types already.", received=f"{len(specs)} types")
        return f, ()
    if not callable(f):
        raise ArgumentError("A library must be made of functions.", received=repr(f))
    jitted = f if isinstance(f, JitFunction) or hasattr(f, "trace") else jit(f)
    check_scopes(jitted, specs, {})
    traced = jitted.trace(*specs)
    return export_trace(traced, stores=False), traced.donate_argnums


def _compile(
    name: str, functions: Sequence[LibraryFunction], machine: Any, threads: bool, lapack: bool
) -> tuple[tuple[CompiledObject, ...], list[Signature]]:
    """Compile functions for each target of a machine; return the objects and the signatures."""
    several = len(machine.targets) > 1
    entries = {f.name: [f.entry(target) for _, target in machine.targets] for f in functions}
    codes, routines = [], dict[str, None]()
    for n, (level, target) in enumerate(machine.targets):
        code = unit.Unit(target, f"{name}_parallel" if threads else None, name if lapack else None)
        for function in functions:
            run = f"{function.name}_run"
            symbol = dispatch.level_symbol(run, level) if several else run
            code.add(entries[function.name][n], symbol, function.failures, several)
        codes.append((level, target, code.text()))
        routines |= code.routines
    signatures = []
    for function in functions:
        signatures.append(function.signature(max(e.workspace_bytes for e in entries[function.name])))
    text = _interface(name, signatures, machine, threads)
    data = tuple(f"{s.name}_signature" for s in signatures)
    base = machine.targets[0][1]
    # Each library has a pool of its own, so that one program can link several.
    pool_objects = [_object(f"{name}_threads.o", pool.standalone_pool_text(base, name), base)] if threads else []
    called = system.routine_texts(routines, base, name, threads)
    pool_objects += [_object(f"{symbol}.o", own, base) for symbol, own in called]
    if not several:
        return (_object(f"{name}.o", codes[0][2] + text, base, data), *pool_objects), signatures
    main = llvm.Module(base.triple, vector_bits=128)
    dispatch.write_dispatch(main, [f"{f.name}_run" for f in functions], [level for level, _ in machine.targets])
    objects = [_object(f"{name}.o", main.text() + text, base, data)]
    objects += [_object(f"{name}_{level.replace('-', '_')}.o", own, target) for level, target, own in codes]
    return (*objects, *pool_objects), signatures


def _object(name: str, text: str, target: Any, data: Sequence[str] = ()) -> CompiledObject:
    code = link.make_object(text, target, link.Tier.LIGHT)
    return CompiledObject(name, code.code, (*code.exports, *data))


def _interface(name: str, signatures: Sequence[Signature], machine: Any, threads: bool) -> str:
    """Return the LLVM text of the signatures, the messages and the description."""
    writer = interface.InterfaceText()
    messages = [message for _, message in header.STATUSES]
    for s in signatures:
        arguments, results = ([_tensor_text(t) for t in some] for some in (s.arguments, s.results))
        sizes, text = [(size.name, size.low, size.high) for size in s.sizes], write_description([s])
        writer.function(
            interface.FunctionText(s.name, arguments, results, sizes, s.workspace_bytes, text, messages, s.checks)
        )
    writer.description(
        write_description(signatures, name=name, target=machine.name, triple=machine.triple, threads=threads)
    )
    return writer.text()


def _tensor_text(tensor: Tensor) -> Any:
    shape = [size if isinstance(size, int) else -1 for size in tensor.shape]
    flags = interface.DONATED * tensor.donated + interface.CONSTANT * tensor.constant
    alias = -1 if tensor.alias is None else tensor.alias
    return interface.TensorText(tensor.name, tensor.dtype, shape, tensor.shape_text, tensor.bytes, flags, alias)
