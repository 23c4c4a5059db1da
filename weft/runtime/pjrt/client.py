"""The client of a plugin: its devices, buffers in their memory, and executables."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.errors import NotSupportedError
from weft.base.forks import held
from weft.runtime.pjrt import structs
from weft.runtime.pjrt.plugin import (
    Plugin,
    PluginError,
    keep_bytes,
    raise_for_user,
    read_named_values,
    read_pointers,
    read_text,
    write_named_values,
)

# The numbers of element types in the API.
_ELEMENTS = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64 complex128 "
    "float8_e5m2 float8_e4m3fn float8_e4m3b11fnuz float8_e5m2fnuz float8_e4m3fnuz int4 uint4 token int2 uint2 "
    "float8_e4m3 float8_e3m4 float8_e8m0fnu float4_e2m1fn"
)
ELEMENT_TYPES = {name: number for number, name in enumerate(_ELEMENTS.split(), 1)}
# The plugin has copied an array when the call returns.
IMMUTABLE_ONLY_DURING_CALL = 0
TILED_LAYOUT = 0
UINT32 = np.dtype(np.uint32)


class Hardware(NamedTuple):
    """Device of a client: its handle, number, process and kind, and its number in the driver of its host."""

    handle: int
    id: int
    process_index: int
    kind: str
    local_id: int


def as_numbers(value: np.ndarray) -> np.ndarray:
    """Return an array as the plugin has it: contiguous, and random keys as words in a last dimension."""
    if value.dtype.names is not None:
        words = value.dtype.itemsize // UINT32.itemsize
        return np.frombuffer(value.tobytes(), UINT32).reshape(*value.shape, words)
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    return np.ascontiguousarray(value).reshape(value.shape)


class Handle:
    """Object of a plugin that is freed with the last reference to it."""

    __slots__ = ("__weakref__", "address", "client")
    kind = ""
    field = ""

    def __init__(self, client: Client, address: int) -> None:
        self.client, self.address = client, address

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self.client.plugin.destroy(self.kind, self.field, self.address)
            self.address = 0


class Buffer(Handle):
    """Memory of a device with one array. `address` is the handle that programs take.

    `host_copy` is a copy to the host that has been started: its array and its event.
    """

    __slots__ = ("host_copy",)
    kind, field = "Buffer", "buffer"

    def __init__(self, client: Client, address: int) -> None:
        super().__init__(client, address)
        self.host_copy: tuple[np.ndarray, int | None] | None = None

    def __del__(self) -> None:
        if self.host_copy is not None:  # the plugin writes to its array
            self.client.plugin.await_event(self.host_copy[1])
        super().__del__()


class Loaded(Handle):
    """Executable that is loaded on devices of a client."""

    __slots__ = ()
    kind, field = "LoadedExecutable", "executable"


class Client:
    """Client of a plugin. Its methods raise errors of users."""

    def __init__(self, plugin: Plugin, options: dict[str, Any]) -> None:
        self.plugin = plugin
        array, alive = write_named_values(options)
        self.handle = plugin("Client_Create", create_options=ctypes.addressof(array), num_options=len(options)).client
        del alive
        name = plugin("Client_PlatformName", client=self.handle)
        self.platform_name = read_text(name.platform_name, name.platform_name_size)
        version = plugin("Client_PlatformVersion", client=self.handle)
        self.platform_version = read_text(version.platform_version, version.platform_version_size)
        self.process_index = plugin("Client_ProcessIndex", client=self.handle).process_index
        found = plugin("Client_AddressableDevices", client=self.handle)
        handles = read_pointers(found.addressable_devices, found.num_addressable_devices)
        self.devices = tuple(self._describe(handle) for handle in handles)
        self._runs = itertools.count(1)
        self._copying = held(threading.Lock())
        self.flags: list[Any] = []  # of programs with checks, until they are read

    def _describe(self, handle: int) -> Hardware:
        plugin = self.plugin
        description = plugin("Device_GetDescription", device=handle).device_description
        kind = plugin("DeviceDescription_Kind", device_description=description)
        return Hardware(
            handle,
            plugin("DeviceDescription_Id", device_description=description).id,
            plugin("DeviceDescription_ProcessIndex", device_description=description).process_index,
            read_text(kind.device_kind, kind.device_kind_size),
            plugin("Device_LocalHardwareId", device=handle).local_hardware_id,
        )

    def memory_statistics(self, device: int) -> dict[str, int] | None:
        """Return the statistics of a device's allocator, or None if the plugin has none."""
        try:
            found = self.plugin("Device_MemoryStats", device=device)
        except (PluginError, NotSupportedError):
            return None
        fields = structs.arguments("Device_MemoryStats")._fields_
        numbers = [name for name, kind in fields if kind is ctypes.c_int64]
        return {name: getattr(found, name) for name in numbers if getattr(found, f"{name}_is_set", True)}

    # -- buffers ---------------------------------------------------------------------------------------------------

    def put(self, value: np.ndarray, device: int) -> Buffer:
        """Copy an array to the memory of a device."""
        value = as_numbers(value)
        number = ELEMENT_TYPES.get(dtypes.name(value.dtype))
        if number is None:
            raise NotSupportedError(
                "Arrays on devices of PJRT plugins must have a dtype of XLA.", received=dtypes.name(value.dtype)
            )
        dims = (ctypes.c_int64 * max(value.ndim, 1))(*value.shape)
        try:
            sent = self.plugin(
                "Client_BufferFromHostBuffer",
                client=self.handle,
                data=value.__array_interface__["data"][0],
                type=number,
                dims=ctypes.addressof(dims),
                num_dims=value.ndim,
                host_buffer_semantics=IMMUTABLE_ONLY_DURING_CALL,
                device=device,
            )
            self.plugin.await_event(sent.done_with_host_buffer)
        except PluginError as error:
            raise_for_user(error, self.plugin.name, f"The copy of {value.nbytes} bytes to the device")
        return Buffer(self, sent.buffer)

    def start_copy(self, buffer: Buffer, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Start to copy a buffer to the host for a later `copy_out`, unless that has begun."""
        with self._copying:
            if buffer.host_copy is None:
                buffer.host_copy = self._begin_copy(buffer, shape, dtype)

    def copy_out(self, buffer: Buffer, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        """Copy a buffer to the host, or wait for the copy that has begun.

        The array must live until the plugin has written it, so no other thread may take or replace the same copy.
        """
        with self._copying:
            begun, buffer.host_copy = buffer.host_copy, None
        return self._finish_copy(begun or self._begin_copy(buffer, shape, dtype))

    def _begin_copy(self, buffer: Buffer, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[np.ndarray, int | None]:
        value = np.empty(tuple(shape), dtype)
        words = () if dtype.names is None else (dtype.itemsize // UINT32.itemsize,)
        order = range(value.ndim + len(words))[::-1]
        minor_to_major = (ctypes.c_int64 * max(len(order), 1))(*order)
        tiled = structs.Tiled(
            struct_size=structs.written_size(structs.Tiled),
            minor_to_major=ctypes.addressof(minor_to_major),
            minor_to_major_size=len(order),
        )
        layout = self.plugin.struct(structs.MemoryLayout, tiled=tiled, type=TILED_LAYOUT)
        try:
            started = self.plugin(
                "Buffer_ToHostBuffer",
                src=buffer.address,
                host_layout=ctypes.addressof(layout),
                dst=value.__array_interface__["data"][0],
                dst_size=value.nbytes,
            )
        except PluginError as error:
            raise_for_user(error, self.plugin.name, "The copy of an array to the host")
        return value, started.event

    def _finish_copy(self, begun: tuple[np.ndarray, int | None]) -> np.ndarray:
        value, event = begun
        try:
            self.plugin.await_event(event)
        except PluginError as error:
            raise_for_user(error, self.plugin.name, "The program that computes this array")
        return value

    def read(self, handle: int, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        """Copy the buffer with a handle, which its owner keeps, to the host."""
        buffer = Buffer(self, handle)
        try:
            return self.copy_out(buffer, shape, dtype)
        finally:
            buffer.address = 0  # it is not freed here

    def copy_to(self, buffer: Buffer, device: int) -> Buffer:
        """Copy a buffer to another device of the client."""
        try:
            return Buffer(self, self.plugin("Buffer_CopyToDevice", buffer=buffer.address, dst_device=device).dst_buffer)
        except PluginError as error:
            raise_for_user(error, self.plugin.name, "The copy of an array to another device")
            raise

    def wait(self, buffer: Buffer) -> None:
        """Wait until a buffer has been written; raise the error of the program that writes it."""
        try:
            self.plugin.await_event(self.plugin("Buffer_ReadyEvent", buffer=buffer.address).event)
        except PluginError as error:
            raise_for_user(error, self.plugin.name, "The program that computes this array")

    def is_ready(self, buffer: Buffer) -> bool:
        """Return whether a buffer has been written."""
        event = self.plugin("Buffer_ReadyEvent", buffer=buffer.address).event
        try:
            return self.plugin.is_event_ready(event)
        finally:
            self.plugin.destroy("Event", "event", event)

    # -- programs --------------------------------------------------------------------------------------------------

    def compile(self, text: str, options: bytes, what: str) -> Loaded:
        """Compile a module of StableHLO."""
        alive: list[Any] = []
        program = make_program(self.plugin, text, alive)
        try:
            compiled = self.plugin(
                "Client_Compile",
                client=self.handle,
                program=ctypes.addressof(program),
                compile_options=keep_bytes(options, alive),
                compile_options_size=len(options),
            )
        except PluginError as error:
            raise_for_user(error, self.plugin.name, f"The compilation of {what}")
        return Loaded(self, compiled.executable)

    def load(self, content: bytes) -> Loaded | None:
        """Load an executable that a client of the same version serialised; None if it cannot."""
        alive: list[Any] = []
        try:
            found = self.plugin(
                "Executable_DeserializeAndLoad",
                client=self.handle,
                serialized_executable=keep_bytes(content, alive),
                serialized_executable_size=len(content),
            )
        except (PluginError, NotSupportedError):
            return None
        return Loaded(self, found.loaded_executable)

    def execute(self, executable: Loaded, arguments: Sequence[Sequence[int]], results: int) -> list[list[Buffer]]:
        """Start an executable on its devices, with the handles of the arguments on each.

        Return the buffers of the results on each device.
        """
        plugin, count = self.plugin, len(arguments)
        pointer, size = ctypes.c_void_p, len(arguments[0])
        lists = [(pointer * max(size, 1))(*each) for each in arguments]
        outputs = [(pointer * max(results, 1))() for _ in arguments]
        argument_lists = (pointer * count)(*map(ctypes.addressof, lists))
        output_lists = (pointer * count)(*map(ctypes.addressof, outputs))
        options = plugin.struct(structs.ExecuteOptions, launch_id=next(self._runs))
        try:
            plugin(
                "LoadedExecutable_Execute",
                executable=executable.address,
                options=ctypes.addressof(options),
                argument_lists=ctypes.addressof(argument_lists),
                num_devices=count,
                num_args=size,
                output_lists=ctypes.addressof(output_lists),
            )
        except PluginError as error:
            raise_for_user(error, plugin.name, "The program")
        return [[Buffer(self, handle or 0) for handle in row[:results]] for row in outputs]


def make_program(plugin: Plugin, text: str, alive: list[Any]) -> Any:
    """Return the struct of a module of StableHLO as text; `alive` gets what it refers to."""
    code, form = text.encode(), b"mlir"
    return plugin.struct(
        structs.Program,
        code=keep_bytes(code, alive),
        code_size=len(code),
        format=keep_bytes(form, alive),
        format_size=len(form),
    )


class Report:
    """Executable of a plugin, loaded on devices or not: its figures and its text."""

    def __init__(self, plugin: Plugin, handle: int) -> None:
        self.plugin, self.handle = plugin, handle

    def __del__(self) -> None:
        self.plugin.destroy("Executable", "executable", self.handle)

    def serialize(self) -> bytes | None:
        """Return the executable as bytes, or None if the plugin cannot."""
        try:
            found = self.plugin("Executable_Serialize", executable=self.handle)
        except (PluginError, NotSupportedError):
            return None
        content = ctypes.string_at(found.serialized_bytes, found.serialized_bytes_size)
        free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(found.serialized_executable_deleter)
        free(found.serialized_executable)
        return content

    @property
    def code_bytes(self) -> int:
        """Size of its code."""
        try:
            return int(self.plugin("Executable_SizeOfGeneratedCodeInBytes", executable=self.handle).size_in_bytes)
        except (PluginError, NotSupportedError):
            return 0

    def memory(self) -> dict[str, int]:
        """Return the bytes of memory that a run takes, by the names of the API."""
        try:
            found = self.plugin("Executable_GetCompiledMemoryStats", executable=self.handle)
        except (PluginError, NotSupportedError):
            return {}
        fields = [name for name, _ in structs.arguments("Executable_GetCompiledMemoryStats")._fields_[3:]]
        return {name: int(getattr(found, name)) for name in fields}

    def costs(self) -> dict[str, float]:
        """Return the operations and bytes of a run, by XLA's names."""
        try:
            found = self.plugin("Executable_GetCostAnalysis", executable=self.handle)
        except (PluginError, NotSupportedError):
            return {}
        values = read_named_values(found.properties, found.num_properties)
        return {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}

    def read_program(self) -> bytes:
        """Return the program after the plugin's passes, as a serialised HLO module; empty if it does not tell."""
        program = self.plugin.struct(structs.Program)
        try:
            self.plugin("Executable_OptimizedProgram", executable=self.handle, program=ctypes.addressof(program))
            content = ctypes.create_string_buffer(max(program.code_size, 1))
            program.code = ctypes.addressof(content)
            self.plugin("Executable_OptimizedProgram", executable=self.handle, program=ctypes.addressof(program))
        except (PluginError, NotSupportedError):
            return b""
        return content.raw[: program.code_size]


def make_report(plugin: Plugin, loaded: Loaded) -> Report:
    """Return the figures and the text of a loaded executable."""
    found = plugin("LoadedExecutable_GetExecutable", loaded_executable=loaded.address)
    return Report(plugin, found.executable)
