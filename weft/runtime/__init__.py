"""Runtime: devices, arrays in their memory, and calls of compiled programs.

This file registers the platforms. A platform is a folder of `runtime` with three classes (`Platform`, `MemoryBackend`,
`ExecutionBackend`) and its lines here; they are loaded at the first use.
"""

import os
from typing import TYPE_CHECKING

from weft.base.lazy import lazy
from weft.runtime.execution_backend import execution_backends
from weft.runtime.memory_backend import memory_backends
from weft.runtime.platforms import accelerators, register_finder, register_platform

if TYPE_CHECKING:
    import weft.runtime.cpu.devices as cpu_devices
    import weft.runtime.cpu.execution_backend as cpu_execution
    import weft.runtime.cpu.memory_backend as cpu_memory
    import weft.runtime.cuda.devices as cuda_devices
    import weft.runtime.cuda.execution_backend as cuda_execution
    import weft.runtime.cuda.memory_backend as cuda_memory
    import weft.runtime.pjrt.register as pjrt_register
else:
    cpu_devices = lazy("weft.runtime.cpu.devices")
    cpu_memory = lazy("weft.runtime.cpu.memory_backend")
    cpu_execution = lazy("weft.runtime.cpu.execution_backend")
    cuda_devices = lazy("weft.runtime.cuda.devices")
    cuda_memory = lazy("weft.runtime.cuda.memory_backend")
    cuda_execution = lazy("weft.runtime.cuda.execution_backend")
    pjrt_register = lazy("weft.runtime.pjrt.register")

register_platform("cpu", lambda: cpu_devices.CpuPlatform())
memory_backends.register("cpu", lambda: cpu_memory.CpuMemoryBackend())
execution_backends.register("cpu", lambda: cpu_execution.CpuExecutionBackend())


def _may_have_nvidia_gpu() -> bool:
    """Return whether NVIDIA's driver has made device files (on WSL: its bridge), and GPUs are not hidden."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu")))


register_platform("gpu", lambda: cuda_devices.CudaPlatform(), aliases=("cuda",), may_be_present=_may_have_nvidia_gpu)
memory_backends.register("gpu", lambda: cuda_memory.CudaMemoryBackend())
execution_backends.register("gpu", lambda: cuda_execution.CudaExecutionBackend())


def _may_have_tpu() -> bool:
    """Return whether there are device files of a kind that TPUs have, and libtpu drives a TPU behind them."""
    return (os.path.exists("/dev/accel0") or os.path.exists("/dev/vfio")) and pjrt_register.may_have_tpu()


# Installed PJRT plugins have a platform each, found at the first unknown name.
register_finder(lambda name: pjrt_register.find(name))
accelerators["tpu"] = _may_have_tpu
