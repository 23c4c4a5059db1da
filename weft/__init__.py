"""Weft: transformations of NumPy-style functions, and their compiler."""

# ruff: noqa: E402
# isort: skip_file
# The one place where upward hooks are set: the evaluator at the bottom of the trace, the printer of jaxprs, and the
# operators and methods of arrays.
import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from weft.base.platforms import check as _check

_check()

# `python -m weft.launch` imports this package first. The launcher needs none of it, and starts at once.
from weft.base.starting import program as _program

if _program() == "weft.launch":
    from weft.launch.main import main as _launch

    raise SystemExit(_launch())

import weft.base.forks  # first: from here on a process may fork while other threads import Weft
from weft.ir.context import EVALUATION as _EVALUATION
from weft.runtime.array import lift as _lift
from weft.runtime.evaluate import evaluate as _evaluate

_EVALUATION.evaluate = _evaluate
_EVALUATION.lift = _lift

from weft.ir.context import context as _context
from weft.sharding.current import Tracing as _Tracing

from weft.indexing.operators import IntegerOperators as _IntegerOperators
from weft.primitives.movement.size import size_value as _size_of

_IntegerOperators.as_array = _size_of

_Tracing.is_active = staticmethod(lambda: _context.trace is not _EVALUATION)

from weft.ir import printer as _printer
from weft.ir.hooks import hooks as _hooks
from weft.lax.primitive_modules import import_primitive as _import_primitive
from weft.primitives.control.tape import add_tangents as _add_tangents, zeros as _zeros
from weft.transforms.batch import batch_jaxpr as _batch_jaxpr

_hooks.import_primitive = _import_primitive
_hooks.zeros = _zeros
_hooks.add = _add_tangents
_hooks.batch_jaxpr = _batch_jaxpr

from weft import lax as lax
from weft import numpy as numpy
from weft.numpy.array_methods import install as _install
from weft.base.publish import MissingNameError as _MissingNameError, publish as _publish
from weft.api.notebook import install as _install_notebook
from weft.base.tracebacks import install as _install_hooks

_install()
_install_hooks()
_install_notebook()

from weft import (
    ad as ad,
    ad_checkpoint as ad_checkpoint,
    checkpoint_policies as checkpoint_policies,
    core as core,
    custom_derivatives as custom_derivatives,
    debug as debug,
    dtypes as dtypes,
    errors as errors,
    flatten_util as flatten_util,
    nn as nn,
    random as random,
    sharding as sharding,
    stages as stages,
    tree as tree,
    tree_util as tree_util,
    typing as typing,
)
from weft.api.signatures import clear_caches as clear_caches
from weft.api.callbacks import (
    effects_barrier as effects_barrier,
    io_callback as io_callback,
    pure_callback as pure_callback,
)
from weft.api.custom import (
    closure_convert as closure_convert,
    custom_gradient as custom_gradient,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
)
from weft.api.devices import (
    block_until_ready as block_until_ready,
    copy_to_host_async as copy_to_host_async,
    default_backend as default_backend,
    device_count as device_count,
    device_get as device_get,
    device_put as device_put,
    devices as devices,
    host_count as host_count,
    host_id as host_id,
    host_ids as host_ids,
    live_arrays as live_arrays,
    local_device_count as local_device_count,
    local_devices as local_devices,
    process_count as process_count,
    process_index as process_index,
    process_indices as process_indices,
)
from weft.api.environment import print_environment_info as print_environment_info
from weft.api.forward_backward import fwd_and_bwd as fwd_and_bwd
from weft.api.differentiate import (
    grad as grad,
    jvp as jvp,
    linear_transpose as linear_transpose,
    linearize as linearize,
    value_and_grad as value_and_grad,
)
from weft.api.inspect import eval_shape as eval_shape, make_jaxpr as make_jaxpr, typeof as typeof
from weft.api.jacobians import hessian as hessian, jacfwd as jacfwd, jacobian as jacobian, jacrev as jacrev
from weft.api.jit import jit as jit
from weft.api.mesh import make_mesh as make_mesh
from weft.api.remat import checkpoint as checkpoint, remat as remat
from weft.api.scopes import (
    checking_leaks as checking_leaks,
    disable_jit as disable_jit,
    ensure_compile_time_eval as ensure_compile_time_eval,
    named_call as named_call,
    named_scope as named_scope,
)
from weft.api.pmap import pmap as pmap
from weft.api.shard_map import shard_map as shard_map, smap as smap
from weft.api.shardings import reshard as reshard
from weft.api.axis_types import auto_axes as _auto_axes, explicit_axes as _explicit_axes
from weft.api.vectorize import vmap as vmap
from weft.api.vjp import vjp as vjp
from weft.base.dtypes import float0 as float0
from weft.base.settings import (
    check_tracer_leaks as check_tracer_leaks,
    checks as checks,
    config as config,
    debug_infs as debug_infs,
    debug_key_reuse as debug_key_reuse,
    debug_nans as debug_nans,
    default_device as default_device,
    default_matmul_precision as default_matmul_precision,
    default_prng_impl as default_prng_impl,
    enable_checks as enable_checks,
    enable_custom_prng as enable_custom_prng,
    enable_x64 as enable_x64,
    explain_cache_misses as explain_cache_misses,
    legacy_prng_key as legacy_prng_key,
    log_compiles as log_compiles,
    make_user_context as make_user_context,
    no_execution as no_execution,
    no_tracing as no_tracing,
    numpy_dtype_promotion as numpy_dtype_promotion,
    numpy_rank_promotion as numpy_rank_promotion,
    reproducible as reproducible,
    thread_guard as thread_guard,
    threefry_partitionable as threefry_partitionable,
    transfer_guard as transfer_guard,
    transfer_guard_device_to_device as transfer_guard_device_to_device,
    transfer_guard_device_to_host as transfer_guard_device_to_host,
    transfer_guard_host_to_device as transfer_guard_host_to_device,
)
from weft.base.state import ignored as _ignored
from weft.ir.interpreter import evaluate as evaluate
from weft.ir.jaxpr import Jaxpr as Jaxpr
from weft.ir.types import ShapeDtypeStruct as ShapeDtypeStruct
from weft import ref as ref
from weft.ref import (
    Ref as Ref,
    ds as ds,
    empty_ref as empty_ref,
    free_ref as free_ref,
    freeze as freeze,
    new_ref as new_ref,
)
from weft.api.process_data import (
    local_to_global_shape as local_to_global_shape,
    make_array_from_process_local_data as make_array_from_process_local_data,
    process_slices as process_slices,
)
from weft.runtime.sharded import (
    make_array_from_callback as make_array_from_callback,
    make_array_from_single_device_arrays as make_array_from_single_device_arrays,
)
from weft.sharding import NamedSharding as NamedSharding, PartitionSpec as _PartitionSpec, set_mesh as set_mesh
from weft.sharding.device import Device as Device
from weft.sharding.layout import Shard as Shard
from weft.trace.array import Array as Array

# Settings of JAX without effect that it has as context managers too.
allow_f16_reductions = _ignored["allow_f16_reductions"]
array_garbage_collection_guard = _ignored["array_garbage_collection_guard"]
auto_pcast = _ignored["auto_pcast"]
jax2tf_associative_scan_reductions = _ignored["jax2tf_associative_scan_reductions"]
remove_size_one_mesh_axis_from_type = _ignored["remove_size_one_mesh_axis_from_type"]
softmax_custom_jvp = _ignored["softmax_custom_jvp"]

# Functions that need arrays are in folders above `weft/sharding`, and public there.
for _function in (reshard, _auto_axes, _explicit_axes):
    setattr(sharding, _function.__name__, _function)


def _sharding_later(name: str) -> _Any:
    """Load `weft.sharding.search`, which imports the compiler, on first use."""
    if name != "search":
        raise _MissingNameError("weft.sharding", name)
    return _importlib.import_module("weft.plan.search").search


from weft.api.searched import Search as _Search

_Search.run = staticmethod(lambda *args, **options: _sharding_later("search")(*args, **options))
setattr(sharding, "__getattr__", _sharding_later)  # noqa: B010
_publish("weft.sharding", later=["search"])

if _TYPE_CHECKING:
    from weft import (
        api_util as api_util,
        checkpointing as checkpointing,
        data as data,
        distributed as distributed,
        dlpack as dlpack,
        experimental as experimental,
        explain as explain,
        extend as extend,
        interpreters as interpreters,
    )
    from weft import export as export, ffi as ffi, memory as memory, monitoring as monitoring
    from weft import parallel as parallel, plan as plan, profiler as profiler
    from weft.profiler import profile as profile

# Modules that are loaded on first use; the last few import the compiler.
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

P = _PartitionSpec

_publish(__name__, later=_LATER)
