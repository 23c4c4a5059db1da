"""Weft: NumPy-style functions, differentiated, vectorised, staged and run."""

# ruff: noqa: E402
# isort: skip_file
# The one place where upward hooks are filled: the evaluator at the bottom of the trace, how jaxprs print, and the
# operators and methods of arrays.
import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from weft.base.platforms import check as _check

_check()

import weft.base.forks  # before all else: from here on a process may fork while others import Weft
from weft.ir.context import EVALUATION as _EVALUATION
from weft.runtime.array import lift as _lift
from weft.runtime.evaluate import evaluate as _evaluate

_EVALUATION.evaluate = _evaluate
_EVALUATION.lift = _lift

from weft.ir.context import context as _context
from weft.sharding.current import Tracing as _Tracing

from weft.indexing.operators import IntegerOperators as _IntegerOperators
from weft.primitives.movement.size import size_of as _size_of

_IntegerOperators.as_array = _size_of

_Tracing.is_active = staticmethod(lambda: _context.trace is not _EVALUATION)

from weft.ir import printer as _printer
from weft.ir.primitive import provide as _provide
from weft.lax.primitive_modules import import_primitive as _import_primitive

_provide("module", _import_primitive)

from weft import lax
from weft import numpy
from weft.numpy.array_methods import install as _install
from weft.base.publish import MissingNameError as _MissingNameError, publish as _publish
from weft.api.notebook import install as _install_notebook
from weft.base.tracebacks import install as _install_hooks

_install()
_install_hooks()
_install_notebook()

from weft import (
    ad,
    ad_checkpoint,
    checkpoint_policies,
    core,
    custom_derivatives,
    debug,
    dtypes,
    errors,
    flatten_util,
    nn,
    random,
    sharding,
    stages,
    tree,
    tree_util,
    typing,
)
from weft.api.cache_report import clear_caches
from weft.api.callbacks import effects_barrier, io_callback, pure_callback
from weft.api.custom import closure_convert, custom_gradient, custom_jvp, custom_vjp
from weft.api.devices import (
    block_until_ready,
    copy_to_host_async,
    default_backend,
    device_count,
    device_get,
    device_put,
    devices,
    host_count,
    host_id,
    host_ids,
    live_arrays,
    local_device_count,
    local_devices,
    process_count,
    process_index,
    process_indices,
)
from weft.api.environment import print_environment_info
from weft.api.forward_backward import fwd_and_bwd
from weft.api.differentiate import grad, jvp, linear_transpose, linearize, value_and_grad
from weft.api.inspect import eval_shape, make_jaxpr, typeof
from weft.api.jacobians import hessian, jacfwd, jacobian, jacrev
from weft.api.jit import jit
from weft.api.mesh import make_mesh
from weft.api.remat import checkpoint, remat
from weft.api.scopes import checking_leaks, disable_jit, ensure_compile_time_eval, named_call, named_scope
from weft.api.pmap import pmap
from weft.api.shard_map import shard_map, smap
from weft.api.shardings import reshard
from weft.api.axis_types import auto_axes as _auto_axes, explicit_axes as _explicit_axes
from weft.api.vectorize import vmap
from weft.api.vjp import vjp
from weft.base.dtypes import float0
from weft.base.settings import (
    check_tracer_leaks,
    checks,
    config,
    debug_infs,
    debug_key_reuse,
    debug_nans,
    default_device,
    default_matmul_precision,
    default_prng_impl,
    enable_checks,
    enable_custom_prng,
    enable_x64,
    explain_cache_misses,
    legacy_prng_key,
    log_compiles,
    make_user_context,
    no_execution,
    no_tracing,
    numpy_dtype_promotion,
    numpy_rank_promotion,
    reproducible,
    thread_guard,
    threefry_partitionable,
    transfer_guard,
    transfer_guard_device_to_device,
    transfer_guard_device_to_host,
    transfer_guard_host_to_device,
)
from weft.base.state import ignored as _ignored
from weft.ir.interpreter import evaluate
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ShapeDtypeStruct
from weft import ref
from weft.ref import Ref, ds, empty_ref, free_ref, freeze, new_ref
from weft.api.process_data import local_to_global_shape, make_array_from_process_local_data, process_slices
from weft.runtime.sharded import make_array_from_callback, make_array_from_single_device_arrays
from weft.sharding import NamedSharding, PartitionSpec as P, set_mesh
from weft.sharding.device import Device
from weft.sharding.layout import Shard
from weft.trace.array import Array

# Settings of JAX without effect that it has as context managers too.
allow_f16_reductions = _ignored["allow_f16_reductions"]
array_garbage_collection_guard = _ignored["array_garbage_collection_guard"]
auto_pcast = _ignored["auto_pcast"]
jax2tf_associative_scan_reductions = _ignored["jax2tf_associative_scan_reductions"]
remove_size_one_mesh_axis_from_type = _ignored["remove_size_one_mesh_axis_from_type"]
softmax_custom_jvp = _ignored["softmax_custom_jvp"]

# What needs arrays is above the folder of shardings, and public there.
for _function in (reshard, _auto_axes, _explicit_axes):
    setattr(sharding, _function.__name__, _function)


def _sharding_later(name: str) -> _Any:
    """What `weft.sharding` has when asked for: `search`, with which comes the compiler."""
    if name != "search":
        raise _MissingNameError("weft.sharding", name)
    return _importlib.import_module("weft.plan.search").search


from weft.api.searched import Search as _Search

_Search.run = staticmethod(lambda *args, **options: _sharding_later("search")(*args, **options))
setattr(sharding, "__getattr__", _sharding_later)  # noqa: B010
_publish("weft.sharding", later=["search"])

if _TYPE_CHECKING:
    from weft import api_util, checkpointing, data, distributed, dlpack, experimental, explain, extend, interpreters
    from weft import export, ffi, memory, monitoring
    from weft import parallel, plan, profiler
    from weft.profiler import profile

# Loaded when somebody asks for them; with the last few comes the compiler.
_LATER = {
    **{name: (f"weft.{name}", "") for name in ("checkpointing", "distributed", "experimental", "haiku", "linen")},
    "custom_batching": ("weft.custom_batching", ""),
    **{name: (f"weft.{name}", "") for name in ("data", "keras", "optim", "scipy", "test_util")},
    **{name: (f"weft.{name}", "") for name in ("example_libraries", "image", "ops")},
    **{
        name: (f"weft.{name}", "")
        for name in ("api_util", "dlpack", "export", "extend", "ffi", "interpreters", "monitoring")
    },
    "explain": ("weft.explain", ""),
    "memory": ("weft.memory", ""),
    "parallel": ("weft.parallel", ""),
    "plan": ("weft.plan", ""),
    "profile": ("weft.profiler", "profile"),
    "profiler": ("weft.profiler", ""),
}


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise _MissingNameError(__name__, name)
    module, attribute = _LATER[name]
    loaded = _importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


__version__ = "0.1.0.dev0"  # the only place: pyproject.toml reads it from here

__all__ = [
    "Array",
    "Device",
    "Jaxpr",
    "NamedSharding",
    "P",
    "Ref",
    "ShapeDtypeStruct",
    "ad",
    "ad_checkpoint",
    "block_until_ready",
    "check_tracer_leaks",
    "checking_leaks",
    "checkpoint",
    "checkpoint_policies",
    "checkpointing",
    "checks",
    "clear_caches",
    "closure_convert",
    "config",
    "copy_to_host_async",
    "core",
    "custom_derivatives",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "data",
    "debug",
    "debug_infs",
    "debug_key_reuse",
    "debug_nans",
    "default_backend",
    "default_device",
    "default_matmul_precision",
    "default_prng_impl",
    "device_count",
    "device_get",
    "device_put",
    "devices",
    "disable_jit",
    "distributed",
    "ds",
    "dtypes",
    "effects_barrier",
    "enable_x64",
    "empty_ref",
    "ensure_compile_time_eval",
    "errors",
    "eval_shape",
    "evaluate",
    "experimental",
    "explain",
    "explain_cache_misses",
    "flatten_util",
    "float0",
    "free_ref",
    "freeze",
    "fwd_and_bwd",
    "grad",
    "hessian",
    "host_count",
    "host_id",
    "io_callback",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linear_transpose",
    "linearize",
    "local_device_count",
    "local_devices",
    "local_to_global_shape",
    "make_mesh",
    "log_compiles",
    "make_array_from_callback",
    "make_array_from_process_local_data",
    "make_array_from_single_device_arrays",
    "make_jaxpr",
    "named_call",
    "named_scope",
    "new_ref",
    "nn",
    "no_tracing",
    "numpy",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "parallel",
    "plan",
    "process_count",
    "process_index",
    "process_slices",
    "profile",
    "profiler",
    "pure_callback",
    "random",
    "ref",
    "remat",
    "reproducible",
    "reshard",
    "set_mesh",
    "pmap",
    "shard_map",
    "sharding",
    "stages",
    "tree",
    "tree_util",
    "typeof",
    "typing",
    "value_and_grad",
    "vjp",
    "vmap",
    "Shard",
    "host_ids",
    "live_arrays",
    "make_user_context",
    "no_execution",
    "print_environment_info",
    "process_indices",
    "thread_guard",
    "threefry_partitionable",
    "transfer_guard",
    "transfer_guard_device_to_device",
    "transfer_guard_device_to_host",
    "transfer_guard_host_to_device",
    "enable_checks",
    "enable_custom_prng",
    "legacy_prng_key",
    "memory",
    "api_util",
    "extend",
    "interpreters",
    "dlpack",
    "monitoring",
    "export",
    "ffi",
    "smap",
]

_publish(__name__, later=_LATER)
