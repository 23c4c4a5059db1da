"""Layouts of the structs of PJRT's C API, and the order of its functions.

The tables state facts of `pjrt_c_api.h`, version 0.81; `tests/pjrt/test_structs.py` compares them with the header of a
plugin. Every struct begins with its size and a pointer to extensions. A field without a type is a pointer. Only the
structs of functions that Weft calls are listed, but all functions are, since their order is the layout of `PJRT_Api`.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

MAJOR_VERSION = 0

_IN_ORDER = """
    Error_Destroy Error_Message Error_GetCode Plugin_Initialize Plugin_Attributes Event_Destroy Event_IsReady
    Event_Error Event_Await Event_OnReady Client_Create Client_Destroy Client_PlatformName Client_ProcessIndex
    Client_PlatformVersion Client_Devices Client_AddressableDevices Client_LookupDevice
    Client_LookupAddressableDevice Client_AddressableMemories Client_Compile Client_DefaultDeviceAssignment
    Client_BufferFromHostBuffer DeviceDescription_Id DeviceDescription_ProcessIndex DeviceDescription_Attributes
    DeviceDescription_Kind DeviceDescription_DebugString DeviceDescription_ToString Device_GetDescription
    Device_IsAddressable Device_LocalHardwareId Device_AddressableMemories Device_DefaultMemory Device_MemoryStats
    Memory_Id Memory_Kind Memory_DebugString Memory_ToString Memory_AddressableByDevices Executable_Destroy
    Executable_Name Executable_NumReplicas Executable_NumPartitions Executable_NumOutputs
    Executable_SizeOfGeneratedCodeInBytes Executable_GetCostAnalysis Executable_OutputMemoryKinds
    Executable_OptimizedProgram Executable_Serialize LoadedExecutable_Destroy LoadedExecutable_GetExecutable
    LoadedExecutable_AddressableDevices LoadedExecutable_Delete LoadedExecutable_IsDeleted LoadedExecutable_Execute
    Executable_DeserializeAndLoad LoadedExecutable_Fingerprint Buffer_Destroy Buffer_ElementType Buffer_Dimensions
    Buffer_UnpaddedDimensions Buffer_DynamicDimensionIndices Buffer_GetMemoryLayout Buffer_OnDeviceSizeInBytes
    Buffer_Device Buffer_Memory Buffer_Delete Buffer_IsDeleted Buffer_CopyToDevice Buffer_ToHostBuffer
    Buffer_IsOnCpu Buffer_ReadyEvent Buffer_UnsafePointer Buffer_IncreaseExternalReferenceCount
    Buffer_DecreaseExternalReferenceCount Buffer_OpaqueDeviceMemoryDataPointer CopyToDeviceStream_Destroy
    CopyToDeviceStream_AddChunk CopyToDeviceStream_TotalBytes CopyToDeviceStream_GranuleSize
    CopyToDeviceStream_CurrentBytes TopologyDescription_Create TopologyDescription_Destroy
    TopologyDescription_PlatformName TopologyDescription_PlatformVersion TopologyDescription_GetDeviceDescriptions
    TopologyDescription_Serialize TopologyDescription_Attributes Compile Executable_OutputElementTypes
    Executable_OutputDimensions Buffer_CopyToMemory Client_CreateViewOfDeviceBuffer Executable_Fingerprint
    Client_TopologyDescription Executable_GetCompiledMemoryStats Memory_Kind_Id ExecuteContext_Create
    ExecuteContext_Destroy Buffer_CopyRawToHost
"""
FUNCTIONS = tuple(_IN_ORDER.split())

_ARGUMENTS = {
    "Error_Destroy": "error",
    "Error_Message": "error message message_size:size",
    "Error_GetCode": "error code:int",
    "Plugin_Initialize": "",
    "Plugin_Attributes": "attributes num_attributes:size",
    "Event_Destroy": "event",
    "Event_IsReady": "event is_ready:bool",
    "Event_Await": "event",
    "Client_Create": "create_options num_options:size kv_get_callback kv_get_user_arg kv_put_callback kv_put_user_arg "
    "client kv_try_get_callback kv_try_get_user_arg",
    "Client_Destroy": "client",
    "Client_PlatformName": "client platform_name platform_name_size:size",
    "Client_ProcessIndex": "client process_index:int",
    "Client_PlatformVersion": "client platform_version platform_version_size:size",
    "Client_Devices": "client devices num_devices:size",
    "Client_AddressableDevices": "client addressable_devices num_addressable_devices:size",
    "Client_Compile": "client program compile_options compile_options_size:size executable",
    "Client_BufferFromHostBuffer": "client data type:int dims num_dims:size byte_strides num_byte_strides:size "
    "host_buffer_semantics:int device memory device_layout done_with_host_buffer buffer",
    "DeviceDescription_Id": "device_description id:int",
    "DeviceDescription_ProcessIndex": "device_description process_index:int",
    "DeviceDescription_Kind": "device_description device_kind device_kind_size:size",
    "Device_GetDescription": "device device_description",
    "Device_LocalHardwareId": "device local_hardware_id:int",
    "Device_MemoryStats": "device bytes_in_use:int64 peak_bytes_in_use:int64 peak_bytes_in_use_is_set:bool "
    "num_allocs:int64 num_allocs_is_set:bool largest_alloc_size:int64 largest_alloc_size_is_set:bool bytes_limit:int64 "
    "bytes_limit_is_set:bool bytes_reserved:int64 bytes_reserved_is_set:bool peak_bytes_reserved:int64 "
    "peak_bytes_reserved_is_set:bool bytes_reservable_limit:int64 bytes_reservable_limit_is_set:bool "
    "largest_free_block_bytes:int64 largest_free_block_bytes_is_set:bool pool_bytes:int64 pool_bytes_is_set:bool "
    "peak_pool_bytes:int64 peak_pool_bytes_is_set:bool",
    "Executable_Destroy": "executable",
    "Executable_NumOutputs": "executable num_outputs:size",
    "Executable_SizeOfGeneratedCodeInBytes": "executable size_in_bytes:int64",
    "Executable_GetCostAnalysis": "executable num_properties:size properties",
    "Executable_OptimizedProgram": "executable program",
    "Executable_Serialize": "executable serialized_bytes serialized_bytes_size:size serialized_executable "
    "serialized_executable_deleter",
    "Executable_GetCompiledMemoryStats": "executable generated_code_size_in_bytes:int64 argument_size_in_bytes:int64 "
    "output_size_in_bytes:int64 alias_size_in_bytes:int64 temp_size_in_bytes:int64 "
    "host_generated_code_size_in_bytes:int64 host_argument_size_in_bytes:int64 host_output_size_in_bytes:int64 "
    "host_alias_size_in_bytes:int64 host_temp_size_in_bytes:int64 peak_memory_in_bytes:int64",
    "LoadedExecutable_Destroy": "executable",
    "LoadedExecutable_GetExecutable": "loaded_executable executable",
    "LoadedExecutable_Execute": "executable options argument_lists num_devices:size num_args:size output_lists "
    "device_complete_events execute_device",
    "Executable_DeserializeAndLoad": "client serialized_executable serialized_executable_size:size loaded_executable "
    "overridden_serialized_compile_options overridden_serialized_compile_options_size:size",
    "Buffer_Destroy": "buffer",
    "Buffer_IsDeleted": "buffer is_deleted:bool",
    "Buffer_CopyToDevice": "buffer dst_device dst_buffer",
    "Buffer_ToHostBuffer": "src host_layout dst dst_size:size event",
    "Buffer_ReadyEvent": "buffer event",
    "Buffer_UnsafePointer": "buffer buffer_pointer:size",
    "TopologyDescription_Create": "topology_name topology_name_size:size create_options num_options:size topology",
    "TopologyDescription_Destroy": "topology",
    "TopologyDescription_PlatformVersion": "topology platform_version platform_version_size:size",
    "TopologyDescription_GetDeviceDescriptions": "topology descriptions num_descriptions:size",
    "Compile": "topology program compile_options compile_options_size:size client executable",
}

_TYPES: dict[str, Any] = {
    "": ctypes.c_void_p,
    "size": ctypes.c_size_t,
    "int": ctypes.c_int,
    "int64": ctypes.c_int64,
    "bool": ctypes.c_bool,
}

Header: Any = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p)]


def make_struct(name: str, fields: str) -> Any:
    """Return the ctypes class of a struct, from its fields as `name` (a pointer) or `name:type`."""
    pairs = [field.partition(":")[::2] for field in fields.split()]
    return type(name, (ctypes.Structure,), {"_fields_": [*Header, *((n, _TYPES[t]) for n, t in pairs)]})


@functools.cache
def arguments(function: str) -> Any:
    """Return the ctypes class of the arguments of a function of the API."""
    return make_struct(f"PJRT_{function}_Args", _ARGUMENTS[function])


def list_functions() -> tuple[str, ...]:
    """Return the functions whose arguments are in the table."""
    return tuple(_ARGUMENTS)


@functools.cache
def written_size(struct: Any) -> int:
    """Return the bytes of a struct up to the end of its last field, which is what the API calls its size."""
    name, kind = struct._fields_[-1]
    size: int = getattr(struct, name).offset + ctypes.sizeof(kind)
    return size


Program = make_struct("PJRT_Program", "code code_size:size format format_size:size")
ExecuteOptions = make_struct(
    "PJRT_ExecuteOptions",
    "send_callbacks recv_callbacks num_send_ops:size num_recv_ops:size launch_id:int non_donatable_input_indices "
    "num_non_donatable_input_indices:size context call_location num_tasks:size task_ids incarnation_ids",
)
Version = make_struct("PJRT_Api_Version", "major_version:int minor_version:int")


# How the bytes of an array on the host are ordered: `tiled` names the dimensions from the innermost to the outermost.
Tiled = make_struct(
    "PJRT_Buffer_MemoryLayout_Tiled",
    "minor_to_major minor_to_major_size:size tile_dims tile_dim_sizes num_tiles:size",
)


class MemoryLayout(ctypes.Structure):
    """Memory layout of a buffer: in the header a union of two layouts, with the tiled one as the larger."""

    _fields_ = (*Header, ("tiled", Tiled), ("type", ctypes.c_int))


class Value(ctypes.Union):
    """Value of a `NamedValue`."""

    _fields_ = (
        ("text", ctypes.c_void_p),
        ("int64", ctypes.c_int64),
        ("real", ctypes.c_float),
        ("boolean", ctypes.c_bool),
    )


class NamedValue(ctypes.Structure):
    """Attribute of a plugin, property of an executable or option of a client."""

    _fields_ = (
        *Header,
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("value", Value),
        ("value_size", ctypes.c_size_t),
    )


# The types of a NamedValue.
STRING, INT64, INT64_LIST, FLOAT, BOOL = range(5)


class Api(ctypes.Structure):
    """Table of the functions of a plugin; `struct_size` says how many of them the plugin has."""

    _fields_ = (*Header, ("version", Version), *((name, ctypes.c_void_p) for name in FUNCTIONS))
