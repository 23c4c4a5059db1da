"""Executables of PJRT plugins: a jaxpr, its text in StableHLO, and the plugin's code on each device.

An executable is compiled for each device that it is called on. Calls return at once: results are buffers that the
plugin writes later, and an error of the program is raised where they are read.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.compile_options import CompileOptions
from weft.base.errors import NotSupportedError
from weft.base.lazy import lazy
from weft.base.memo import Memo, cached_property
from weft.base.spans import measured
from weft.compiler import cache
from weft.compiler.target import stablehlo
from weft.compiler.target.stablehlo.module import donation_aliases
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ArrayType, TapeType
from weft.runtime.array import ConcreteArray, array_at, copy_array, put
from weft.runtime.device import Placement
from weft.runtime.pjrt import checks, parts
from weft.runtime.pjrt.client import Buffer, Client, Loaded, make_report
from weft.runtime.pjrt.options import CPU_SETTINGS, write_compile_options

if TYPE_CHECKING:
    from weft.runtime.pjrt import inside as inspection
    from weft.runtime.pjrt.inside import PjrtInside
else:
    inspection = lazy("weft.runtime.pjrt.inside")

# Variables with flags of XLA, on which code depends.
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
# Executables on disk.
SUFFIX, MAGIC = ".x", b"weft pjrt executable 1\n"


class PjrtCompilation:
    """Compilation of a jaxpr by a plugin: the text that it takes, and the seconds of each stage.

    With `options`, its checks have become a flag, which is the last result if it is `flagged`.
    """

    key = None  # executables are on disk by their text

    def __init__(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        platform: str,
        sizes: dict[Any, int] | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        self.traced, self.donated, self.platform, self.sizes = jaxpr, tuple(donated), platform, sizes
        self.seconds: dict[str, float] = {}
        self.options = options if options is not None and checks.needs_flag(jaxpr, options) else None
        self.emitted, self.flagged = jaxpr, False
        if self.options is not None:
            self.emitted, self.flagged = checks.add_flag(jaxpr, platform, self.options)
        self.aliases: tuple[int | None, ...] = ()
        if any(donated) and self.options is None:
            self.aliases = tuple(donation_aliases(jaxpr, donated))

    @cached_property
    def text(self) -> str:
        """Module in StableHLO."""
        sizes = self.sizes or {}
        count = math.prod(sizes.values())
        with measured(self.seconds, "compile", "stablehlo"):
            return stablehlo.emit(
                self.emitted, donated=self.aliases, num_partitions=count, axes=sizes, platform=self.platform
            )

    @cached_property
    def parts(self) -> tuple[Jaxpr, list[parts.Part]] | None:
        """Program with its calls inlined, and its parts between operations for the host; None if it is one module."""
        try:
            _ = self.text
        except NotSupportedError:
            found = None if self.sizes else parts.split_program(self.emitted, self.platform)
            if found is None:
                raise
            return found
        return None

    @property
    def name(self) -> str:
        """Name of the function, for messages."""
        return self.traced.name or "a program"

    @property
    def stages(self) -> list[Any]:
        """Stages with a jaxpr of their own: none."""
        return []

    def complete(self) -> None:
        """Do nothing: the text has all there is."""


class PjrtExecutable:
    """Executable of a program on one device of a plugin."""

    asynchronous = False  # every call returns before the program has run

    def __init__(self, compilation: PjrtCompilation, client: Client, device: int = 0) -> None:
        self.compilation = compilation
        self._requested = client, device
        self.compile_stats: list[Any] = []  # seconds are those of the compilation
        self.in_types: list[Any] = [v.aval for v in compilation.traced.invars]
        self.out_types: list[Any] = [v.aval for v in compilation.traced.outvars]
        self.has_tapes = any(isinstance(t, TapeType) for t in (*self.in_types, *self.out_types))
        self.holds_arguments = compilation.options is not None
        self._loaded: dict[int, Loaded] = {}

    @cached_property
    def part_executables(self) -> list[PjrtExecutable | None]:
        """Executables of the parts of the program; None for operations on the host. Empty if it is one module."""
        found = self.compilation.parts
        platform = self.compilation.platform
        return [
            None if part.jaxpr is None else PjrtExecutable(PjrtCompilation(part.jaxpr, (), platform), *self._requested)
            for part in (() if found is None else found[1])
        ]

    def prepare(self) -> None:
        """Compile the program for the device that it was requested for."""
        if self.compilation.parts is None:
            self.load(*self._requested)
        for part in self.part_executables:
            if part is not None:
                part.load(*self._requested)

    def load(self, client: Client, device: int) -> Loaded:
        """Return the code on a device, given by its index in the client; compile it at the first use."""
        found = self._loaded.get(device)
        if found is None:
            created = load_or_compile(client, self.compilation, (client.devices[device].id,))
            found = self._loaded.setdefault(device, created)
        return found

    def __call__(self, arrays: Sequence[Any], donate: Callable[[], None] | None, placement: Placement) -> list[Any]:
        """Start the program on arrays (donated ones as buffers); return arrays at a placement."""
        operands: list[Any] = [
            a if type(a) is Buffer else operand(a, t, placement) for a, t in zip(arrays, self.in_types, strict=True)
        ]
        found = self.start(operands, placement)
        if donate is not None:
            donate()
        return [array_at(placement, None, t, b, b.address) for t, b in zip(self.out_types, found, strict=True)]

    def start(self, operands: Sequence[Any], placement: Placement) -> list[Buffer]:
        """Start the program on arrays of its device, or on buffers that it may take; return the buffers of results."""
        client: Client = placement.memory.client
        options = self.compilation.options
        if options is not None:
            checks.check_flags(client.flags, checks.MOST_PENDING - 1)
            if options.debug_infs:  # they may vanish in later results, so that the flag does not show them
                checks.find_failure(self.compilation.traced, options, self._as_arrays(operands, placement))
        if self.compilation.parts is not None:
            found = self._run_parts(self._as_arrays(operands, placement), placement)
        else:
            loaded = self.load(client, placement.device.local_hardware_id or 0)
            handles = [a.address if type(a) is Buffer else a._pointer for a in operands]
            found = client.execute(loaded, [handles], len(self.compilation.emitted.outvars))[0]
        if self.compilation.flagged and options is not None:
            held = self._as_arrays(operands, placement)
            find = functools.partial(checks.find_failure, self.compilation.traced, options, held)
            client.flags.append(checks.PendingFlag(found.pop(), find))
        return found

    def _as_arrays(self, operands: Sequence[Any], placement: Placement) -> list[ConcreteArray]:
        """Return operands as arrays of their own, which stay when the caller's are deleted."""
        memory = [a if type(a) is Buffer else a._memory for a in operands]
        return [array_at(placement, None, t, b, b.address) for t, b in zip(self.in_types, memory, strict=True)]

    def _run_parts(self, operands: Sequence[ConcreteArray], placement: Placement) -> list[Buffer]:
        """Run the program in parts, with operations on the host between them."""
        assert self.compilation.parts is not None
        whole, program = self.compilation.parts
        runs: list[tuple[parts.Part, Callable[[Sequence[Any]], list[Any]]]] = []
        for part, executable in zip(program, self.part_executables, strict=True):
            if executable is not None:
                runs.append((part, functools.partial(executable, donate=None, placement=placement)))
                continue
            assert part.equation is not None
            types, results = ([v.aval for v in side] for side in (part.equation.invars, part.equation.outvars))
            runs.append((part, parts.host_call(part.equation, types, results, placement)))
        found = parts.run_parts(whole, runs, operands)
        types = [v.aval for v in self.compilation.emitted.outvars]
        arrays = [operand(a, t, placement) for a, t in zip(found, types, strict=True)]
        return [a._memory for a in arrays if isinstance(a._memory, Buffer)]

    def run_timed(self, *arguments: Any) -> Any:
        """Raise: plugins do not tell the times of steps."""
        raise NotSupportedError(
            "Times of steps must come from Weft's own code.",
            received=f"a program for the PJRT plugin of {self.compilation.platform!r}",
            fix="the same on a CPU or an NVIDIA GPU: weft.jit(f, device=weft.devices('cpu')[0])",
        )

    # -- inspection ------------------------------------------------------------------------------------------------

    @property
    def inside(self) -> PjrtInside:
        """Inspector of the program: its texts and statistics."""
        return inspection.PjrtInside(self)

    def find_code(self) -> Loaded:
        """Return the code on the first device that it was loaded to, by default the one that it was compiled for."""
        return next(iter(self._loaded.values()), None) or self.load(*self._requested)

    def code_bytes(self) -> int:
        """Return the bytes of its code on a device."""
        return self.inside.memory_analysis().generated_code_size_in_bytes

    def optimise(self) -> None:
        """Do nothing: its code is the best there is."""

    def own_arguments(self, values: Sequence[Any], donated: Sequence[bool], placement: Placement) -> list[Any]:
        """Convert values to arguments of a call; those that the program may overwrite are copied."""
        found: list[Any] = []
        for i, (value, aval) in enumerate(zip(values, self.in_types, strict=True)):
            array = operand(value, aval, placement)
            copy = donated and donated[i]
            found.append(placement.memory_backend.copy_between(array, placement.device)[1] if copy else array)
        return found


def operand(value: Any, aval: Any, placement: Placement) -> ConcreteArray:
    """Return an argument as an array on the device of a placement."""
    if not isinstance(value, ConcreteArray):
        return copy_array(np.asarray(value), aval, placement)
    if value.is_deleted():
        value._raise_deleted()
    return value if value._placement.device is placement.device else put(value, placement)


def load_or_compile(client: Client, compilation: PjrtCompilation, devices: Sequence[int]) -> Loaded:
    """Load an executable for devices of a client from disk, or compile and store it."""
    settings = CPU_SETTINGS if client.platform_name == "cpu" else None
    text, options = compilation.text, write_compile_options(devices, settings)
    key = None if cache.folder() is None else executable_key(client, text, options)
    if key is not None:
        content = cache.read(key, MAGIC)
        if content is not None:
            with measured(compilation.seconds, "compile", "executable from disk"):
                found = client.load(content)
            if found is not None:
                return found
    with measured(compilation.seconds, "compile", "plugin"):
        loaded = client.compile(text, options, f"`{compilation.name}`")
    if key is not None:
        content = make_report(client.plugin, loaded).serialize()
        if content is not None:
            cache.write(key, MAGIC, content)
    return loaded


def executable_key(client: Client, text: str, options: bytes) -> str:
    """Return the name of an executable on disk: a digest of its text, options and compiler."""
    digest = hashlib.blake2b(digest_size=20)
    flags = [os.environ.get(name, "") for name in FLAGS]
    versions = (
        f"{flags} {client.platform_name} {client.platform_version} {client.plugin.version} {client.plugin.fingerprint}"
    )
    for part in (text.encode(), options, versions.encode()):
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest() + SUFFIX


# Scalars on devices by placement, type and value: eager operations use the same few again.
_scalars: Memo[Any, ConcreteArray] = Memo(1024)


def eager_operand(value: Any, aval: ArrayType, placement: Placement) -> ConcreteArray:
    """Return an operand of an eager operation as an array on the device of a placement."""
    if isinstance(value, ConcreteArray) or value.ndim:
        return operand(value, aval, placement)
    key = (placement, aval, value.tobytes())
    found = _scalars.get(key)
    return found if found is not None else _scalars.keep(key, operand(value, aval, placement))
