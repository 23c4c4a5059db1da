"""Tests that are run on faults: a fixed part of the suite that runs in a minute, fast tests first.

As a plugin of pytest (`-p tests.faults.subset`) it leaves only these tests, in this order, and records progress
in a file, which survives if the process is killed.
"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any

import pytest

# A file of tests, or one function of it, and which cases of each function: every so many, from the first on.
SUBSET: tuple[tuple[str, int], ...] = (
    ("compiler/test_passes_text.py", 1),
    ("compiler/test_passes_rules.py", 1),
    ("compiler/test_passes_pipeline.py", 1),
    ("compiler/test_partition_verify.py", 1),
    ("compiler/test_partition.py", 1),
    ("compiler/test_partition_text.py", 1),
    ("compiler/test_halos.py", 1),
    ("compiler/test_halo_programs.py", 1),
    ("compiler/test_fuse_text.py", 1),
    ("compiler/test_regressions.py", 1),
    ("text/test_kernels.py", 1),
    ("laws/test_compiled.py", 1),
    ("compiler/test_bytecode.py", 1),
    ("compiler/test_program.py", 1),
    ("compiler/test_emit.py", 1),
    ("compiler/test_native_loops.py", 1),
    ("compiler/test_stored.py", 1),
    ("compiler/test_loops.py", 1),
    ("compiler/test_tapes.py", 1),
    ("compiler/test_fuse.py", 1),
    ("compiler/test_kernel_shift.py", 4),
    ("unit/test_reproducible.py::test_training_steps_of_an_mlp", 2),
    ("unit/test_jit.py", 1),
    ("unit/test_memory.py", 1),
    ("unit/test_devices_arrays.py", 1),
    ("unit/test_callbacks.py", 1),
    ("unit/test_differentiate.py", 1),
    ("fuzz/test_structure.py::test_programs", 3),
    ("fuzz/test_accuracy.py", 1),
    ("laws/test_partition.py", 4),
    ("laws/test_batching.py", 8),
    ("laws/test_derivatives.py", 16),
    ("laws/test_programs.py", 10),
    ("laws/test_compositions.py", 12),
    ("unit/test_control_flow.py", 2),
    ("compiler/test_emit_movement.py::test_results_may_overwrite_the_operands_that_emissions_name", 1),
    ("compiler/test_emit_movement.py", 3),
    ("compiler/test_emit_argmax.py", 2),
    ("compiler/test_emit_row.py::test_an_argument_may_have_the_memory_of_a_result", 1),
    ("compiler/test_emit_row.py", 3),
    ("compiler/test_emit_scatter.py", 2),
    ("compiler/test_emit_matrices.py", 3),
    ("compiler/test_emit_convolution.py", 3),
    ("compiler/test_emit_cumulative.py", 4),
    ("compiler/test_emit_contraction.py::test_large_matmuls_in_blocks_panels_parts_and_chunks", 1),
    ("compiler/test_emit_contraction.py", 3),
    ("compiler/test_emit_window.py", 6),
    ("compiler/test_emit_sort.py", 5),
    ("compiler/test_split_transforms.py", 6),
    ("compiler/test_library.py", 3),
    ("compiler/test_lanes.py", 1),
    ("compiler/test_math_accuracy.py::test_zeros_keep_their_sign_and_denormals_are_not_flushed", 1),
    ("compiler/test_math_accuracy.py", 6),
    ("compiler/test_kernel_machines.py", 1),
    ("compiler/test_checks.py", 6),
    ("compiler/test_flags.py", 16),
    ("compiler/test_pool.py", 2),
)
# Of these files, what takes long for what it finds.
LEFT_OUT = frozenset(
    f"tests/{name}"
    for name in (
        "laws/test_compositions.py::test_a_sample_of_triples",
        "unit/test_memory.py::test_a_process_with_little_memory_continues",
        "compiler/test_stored.py::test_a_second_process_does_not_load_the_compiler",
        "compiler/test_kernel_machines.py::test_a_process_may_end_during_background_compilation",
        "compiler/test_library.py::test_importing_loads_nothing_and_capsules_load_little",
        "compiler/test_library.py::test_the_code_of_all_routines_is_accepted",
        "compiler/test_loops.py::test_matrix_and_vector",
        "compiler/test_emit_sort.py::test_one_row_in_blocks_and_buckets",
        "compiler/test_emit_sort.py::test_large_buckets_have_wider_digits",
        "compiler/test_emit_window.py::test_dtypes",
        "compiler/test_emit_window.py::test_looped_and_unrolled_phases_agree",
        "compiler/test_emit_scatter.py::test_many_scalars_are_sorted_by_blocks_of_the_array",
        "compiler/test_emit_scatter.py::test_scalars_of_every_dtype_are_sorted_by_blocks",
        "compiler/test_lanes.py::test_other_widths_match",
        "compiler/test_lanes.py::test_other_machines_call_no_library_functions",
        "compiler/test_lanes.py::test_small_types",
        "compiler/test_checks.py::test_traps_everywhere",
        "compiler/test_flags.py::test_scatters_with_a_flag",
        "compiler/test_flags.py::test_a_long_chain_of_shared_values_takes_few_steps",
        "compiler/test_library.py::test_transforms_are_loaded_without_the_package_around_them",
        "compiler/test_pool.py::test_a_process_ends",
        # These look at the threads of the process, of which tests before them may have left some.
        "compiler/test_pool.py::test_threads_are_created_by_the_first_job_that_can_use_them",
        "compiler/test_pool.py::test_workers_end_before_a_fork",
        "unit/test_control_flow.py::test_loops_in_branches_chosen_per_element",
        "unit/test_jit.py::test_check_tracer_leaks_finds_it_where_it_happens",
    )
)
# Where to write the test that is under way and the one that failed; which test to begin with.
STATE, FIRST = "WEFT_FAULTS_STATE", "WEFT_FAULTS_FIRST"


# Files that are run first because they are near to a fault, at most; and those that are near to every fault.
NEAR = 4
CORE = tuple(
    f"tests/{name}.py"
    for name in (
        "compiler/test_regressions",
        "laws/test_compiled",
        "compiler/test_program",
        "compiler/test_stored",
        "unit/test_jit",
    )
)


def stages(file: str, first: str) -> list[list[str]]:
    """Split the files of the subset in two: those with names near to that of a file of the package, with that of the
    test `first`, and the others. Most faults are detected by the first part, which takes seconds."""
    folders, _, name = file.rpartition("/")
    words = {**dict.fromkeys(folders.split("/"), 1), **dict.fromkeys(name.removesuffix(".py").split("_"), 2)}
    paths = list(dict.fromkeys(f"tests/{name.partition('::')[0]}" for name, _ in SUBSET))
    worth = {path: sum(weight for word, weight in words.items() if word in path.split("/", 2)[2]) for path in paths}
    worth[first.partition("::")[0]] = 100
    near = sorted((path for path in paths if worth[path]), key=lambda path: -worth[path])[:NEAR]
    near = list(dict.fromkeys([*near, *CORE]))
    return [near, [path for path in paths if path not in near]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        if not any(map(item.get_closest_marker, ("slow", "timing"))) and name not in LEFT_OUT:
            functions.setdefault(name, []).append(item)
    chosen: dict[pytest.Item, None] = {}
    for wanted, every in SUBSET:
        for name, cases in functions.items():
            if f"tests/{wanted}" in (name, name.partition("::")[0]):
                chosen.update(dict.fromkeys(cases[::every]))
    first = os.environ.get(FIRST)
    items[:] = sorted(chosen, key=lambda item: item.nodeid != first)
    for name, module in list(sys.modules.items()):
        if name == "tests.fuzz.campaign":
            module.report = _as_it_is  # type: ignore[attr-defined]  # nobody reads the failures here


def _as_it_is(program: Any, *args: Any) -> str:
    return str(program.text)


def _say(word: str, nodeid: str) -> None:
    if STATE in os.environ:
        with pathlib.Path(os.environ[STATE]).open("a") as file:
            file.write(f"{word} {nodeid}\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _say("start", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _say("failed", report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _say("broken", report.nodeid)
