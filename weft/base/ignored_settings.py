"""Settings of JAX without effect in Weft: programs may set and read them, and each has a reason why it does not matter.

A setting that would change results, or that a program relies on to raise an error, must not be in this table: it
belongs in `weft.base.settings`, where it is implemented or refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Ignored(NamedTuple):
    """A setting without effect: its default value, and the reason."""

    default: Any
    reason: str


_XLA = "it is an option of XLA, which is not used."
_MLIR = "it is about MLIR modules, which there are none of."
_CACHE = "what is stored on disk is checked, small and never wrong, so there is nothing to choose."
_PALLAS = "there is no Pallas."
_INTERNAL = "it chooses between two implementations inside of JAX, of which there is one here."
_PGLE = "programs are not compiled again from profiles."
_TPU = "it is about devices that are not supported."
_PROCESSES = "processes find each other by MPI, which has settings of its own."
_PRINTED = "source lines are always recorded, and cost nothing until somebody asks for them."

IGNORED: dict[str, Ignored] = {
    "jax_allow_f16_reductions": Ignored(True, "reductions of float16 accumulate in float32 in any case."),
    "jax_array_garbage_collection_guard": Ignored(None, "arrays are in no reference cycles."),
    "jax_auto_pcast": Ignored(True, "operands are cast to one state along manual axes in any case."),
    "jax_backend_target": Ignored("", "there are no remote backends."),
    "jax_bcoo_cusparse_lowering": Ignored(False, "sparse operations are compiled as any others."),
    "jax_captured_constants_report_frames": Ignored(0, "the warning names the user's line."),
    "jax_check_proxy_envs": Ignored(True, "nothing is fetched from a network."),
    "jax_compilation_cache_check_contents": Ignored(False, _CACHE),
    "jax_compilation_cache_expect_pgle": Ignored(False, _PGLE),
    "jax_compilation_cache_include_metadata_in_key": Ignored(False, _CACHE),
    "jax_compilation_cache_max_size": Ignored(-1, "the folder has a limit of its own, after which old files go."),
    "jax_compiler_detailed_logging_min_ops": Ignored(10, "log_compiles says the same of all programs."),
    "jax_compiler_enable_remat_pass": Ignored(True, "nothing is recomputed but what `checkpoint` says."),
    "jax_cpu_collectives_implementation": Ignored("gloo", _PROCESSES),
    "jax_cpu_get_global_topology_timeout_minutes": Ignored(5, _PROCESSES),
    "jax_cpu_get_local_topology_timeout_minutes": Ignored(2, _PROCESSES),
    "jax_cross_host_transfer_socket_address": Ignored("", _PROCESSES),
    "jax_cross_host_transfer_timeout_seconds": Ignored(None, _PROCESSES),
    "jax_cross_host_transfer_transfer_size": Ignored(None, _PROCESSES),
    "jax_cross_host_transport_addresses": Ignored("", _PROCESSES),
    "jax_custom_vjp3": Ignored(False, _INTERNAL),
    "jax_debug_leaked_clients_on_clear_backends": Ignored(False, "backends are never cleared."),
    "jax_debug_log_modules": Ignored("", "there is one logger, logging.getLogger('weft')."),
    "jax_disable_bwd_checks": Ignored(False, "the checks of backward rules cost nothing at run time."),
    "jax_disable_most_optimizations": Ignored(False, "results do not depend on optimisations, and no pass is slow."),
    "jax_disallow_mesh_context_manager": Ignored(False, "`with mesh:` is set_mesh."),
    "jax_distributed_debug": Ignored(False, "stuck_after and weft.distributed report what processes wait for."),
    "jax_dump_ir_modes": Ignored("stablehlo", _MLIR),
    "jax_dynamic_shapes": Ignored(False, "sizes become symbols by themselves: see `symbolic_sizes`."),
    "jax_embedded_constants_max_bytes": Ignored(32, "arrays are never written into code."),
    "jax_enable_pgle": Ignored(False, _PGLE),
    "jax_enable_preemption_service": Ignored(True, _PROCESSES),
    "jax_enable_recoverability": Ignored(False, "weft.distributed goes on without lost processes in any case."),
    "jax_exec_time_optimization_effort": Ignored(0.0, "autotune_milliseconds says how long to search."),
    "jax_experimental_unsafe_xla_runtime_errors": Ignored(False, "errors are raised where they happen."),
    "jax_export_calling_convention_version": Ignored(10, "the file of an export says its version."),
    "jax_export_ignore_forward_compatibility": Ignored(False, "the file of an export says its version."),
    "jax_force_dcn_cross_host_transfers": Ignored(False, _PROCESSES),
    "jax_hlo_source_file_canonicalization_regex": Ignored(None, _MLIR),
    "jax_include_debug_info_in_dumps": Ignored(True, _PRINTED),
    "jax_include_full_tracebacks_in_locations": Ignored(True, _PRINTED),
    "jax_log_checkpoint_residuals": Ignored(False, "weft.ad_checkpoint.print_saved_residuals prints them."),
    "jax_memory_fitting_effort": Ignored(0.0, _XLA),
    "jax_memory_fitting_level": Ignored("O2", _XLA),
    "jax_mosaic_allow_hlo": Ignored(False, _PALLAS),
    "jax_mutable_array_checks": Ignored(True, "what may be shared is always checked."),
    "jax_oneapi_visible_devices": Ignored("all", _TPU),
    "jax_optimization_level": Ignored("UNKNOWN", "code is compiled quickly first, and better if it is called often."),
    "jax_pallas_enable_debug_checks": Ignored(False, _PALLAS),
    "jax_pallas_poison_buffers": Ignored(False, _PALLAS),
    "jax_pallas_use_mosaic_gpu": Ignored(True, _PALLAS),
    "jax_pallas_verbose_errors": Ignored(False, _PALLAS),
    "jax_persistent_cache_enable_xla_caches": Ignored("xla_gpu_per_fusion_autotune_cache_dir", _XLA),
    "jax_persistent_cache_min_compile_time_secs": Ignored(1.0, _CACHE),
    "jax_persistent_cache_min_entry_size_bytes": Ignored(0, _CACHE),
    "jax_pgle_aggregation_percentile": Ignored(90, _PGLE),
    "jax_pgle_profiling_runs": Ignored(3, _PGLE),
    "jax_pjrt_client_create_options": Ignored(None, _XLA),
    "jax_pprint_use_color": Ignored(True, "jaxprs are printed without colours."),
    "jax_ragged_dot_use_gpu_pallas_triton_lowering": Ignored(False, _PALLAS),
    "jax_ragged_dot_use_ragged_dot_instruction": Ignored(True, _XLA),
    "jax_raise_persistent_cache_errors": Ignored(False, "a file that cannot be read is compiled again."),
    "jax_refs_to_pins": Ignored(False, _INTERNAL),
    "jax_remat3": Ignored(False, _INTERNAL),
    "jax_remove_custom_partitioning_ptr_from_cache_key": Ignored(False, _CACHE),
    "jax_remove_size_one_mesh_axis_from_type": Ignored(False, "axes of size 1 stay in types, where they cost nothing."),
    "jax_rocm_visible_devices": Ignored("all", _TPU),
    "jax_scan3": Ignored(False, _INTERNAL),
    "jax_send_traceback_to_runtime": Ignored("off", "errors at run time name the user's line in any case."),
    "jax_serialization_version": Ignored(0, "the file of an export says its version."),
    "jax_share_binary_between_hosts": Ignored(False, "each process compiles, or reads what is on disk."),
    "jax_share_binary_between_hosts_timeout_ms": Ignored(1200000, "each process compiles, or reads what is on disk."),
    "jax_softmax_custom_jvp": Ignored(False, "the derivative of softmax is the accurate one in any case."),
    "jax_sort_devices_by_process_index": Ignored(True, "they are sorted so in any case."),
    "jax_source_url_schema": Ignored(None, "tracebacks have plain file names."),
    "jax_threefry_gpu_kernel_lowering": Ignored(False, "there is one implementation, with the same bits."),
    "jax_traceback_in_locations_limit": Ignored(100, _PRINTED),
    "jax_tracer_error_num_traceback_frames": Ignored(5, "errors name the line of the user."),
    "jax_use_direct_linearize": Ignored(True, _INTERNAL),
    "jax_use_emit_pipeline_primitive": Ignored(False, _PALLAS),
    "jax_use_magma": Ignored("auto", "there is no MAGMA."),
    "jax_use_shardy_partitioner": Ignored(True, "there is one partitioner."),
    "jax_use_simplified_jaxpr_constants": Ignored(False, "constants are always attached to a jaxpr."),
    "jax_xla_backend": Ignored("", _XLA),
    "jax_xla_profile_version": Ignored(0, _XLA),
    "jax2tf_associative_scan_reductions": Ignored(False, "there is no TensorFlow."),
    "jax2tf_default_native_serialization": Ignored(True, "there is no TensorFlow."),
    "check_vma": Ignored(False, "shard_map has a parameter of this name."),
    "eager_constant_folding": Ignored(False, "constants are always folded."),
}
