"""Sort outcomes of a peer's tests on Weft: what counts as a difference, and what does not.

A failure is sorted by its error. What needs a private part of the peer, or a library that is not installed, does not
count; neither does a test that fails on the peer itself. The rules read texts of errors, so that a single test may be
in the wrong class.
"""

from __future__ import annotations

import collections
import json
import pathlib
import re
from typing import Any

CLASSES = ("passed", "words", "class", "accepts", "behaviour", "absent", "decided", "private", "needs", "skipped")
"""Passed; another message; another error class; accepts what the peer refuses; another result; no such feature;
another result by a decision in docs/differences.md; about private parts; about other libraries; skipped."""

NEEDS = re.compile(
    r"^NotInstalled|No module named '(tensorflow|torch|grain|onnx|onnxruntime|dill|tf_keras|bsuite|tree)"
    r"|does not come with trained weights"
    r"|requires the (grain|tensorflow)|Number of devices must be at least|portpicker"
    # Texts of XLA's programs.
    r"|dialect must be 'jaxpr'"
)
PRIVATE = re.compile(
    "|".join(
        (
            r"^PrivateName",
            r"has no attribute '_",
            r"module '(keras\.src|optax\._src|haiku\._src)",
            r"unittest\.mock\.Mock",
            # Internals that tests construct or inspect: scopes, nodes, compiled containers, index tables.
            r"Scope\.__init__\(\)|Scope' object has no attribute|Node\.__init__\(\)|_compute_attention\(\)",
            r"'CompileMetrics' object|IndexLookup does not take|layers\.IndexLookup|GLOBAL_CUSTOM_NAMES",
            r"'Meta' object|_Backend' object|object has no attribute 'backend'|FBetaScore\._build",
            r"no attribute '(debug_path|module_stack|module_auto_repr)'|_compact_name_scope_methods",
            r"init\(\) missing 1 required positional argument: 'module'",
        )
    )
)
ABSENT = re.compile(
    r"^AbsentName|unexpected keyword argument|is not there when Weft runs as JAX"
    r"|no attribute '(quantize\w*|quantization_mode|rematerialized_call|lora_\w+|get_state_tree|set_state_tree)'",
    re.I,
)
QUANTIZATION = re.compile(r"quanti|int8|int4|float8|gptq|awq", re.I)
DECIDED = re.compile(
    r"sparse=True|ragged=True|[Aa]rrays of Weft are dense|dense arrays only|use_cudnn=True|A config that names a file"
    # A file names classes and functions that are registered, and no others.
    r"|The class or function '\w+' is not known"
)
DECIDED_OF_SYMBOLS = re.compile(
    r"ArgumentTypeError: .*(integer|does not accept dtype float32|boolean scalar)|(gcd|lcm|ldexp) takes"
    r"|ShapeMismatchError|query heads must be a multiple|label 'i' has size|AxisOutOfBoundsError|ctc_loss takes"
    r"|'(int|tuple)' object has no attribute 'shape'|meshgrid takes arrays of rank 1|`kernel_size` argument must be"
)
"""Symbolic calls of operations that the same calls with arrays refuse: here they are refused too."""
SYMBOLIC = re.compile(r"ops__\w+_test\.py::\w*(Dynamic|Static)ShapeTest::|test_segment_reduce_leading_not_match")
DECIDED_TESTS = re.compile(
    "|".join(
        (
            # Callbacks get indices of batches that exist; an epoch has the steps that were asked for.
            r"test_steps_per_execution_steps_(count_(3|101)|per_epoch)_?",
            # Each batch of `predict` draws anew; loaders shuffle each epoch anew.
            r"test_predict_dropout|from_directory_shuffle_grain",
            # Configs have all arguments; class axes other than the last are computed; modules are those of linen.
            r"(CosineSimilarity|HuberLoss)Test::test_config|segmentation_different_axis|test_(with_)?flax_(layer|state)_",
            # Tables of embeddings are files of their own, and no variables of a checkpoint of TensorFlow.
            r"test_TensorBoard_projector_callback",
            # `model.metrics` has the metrics themselves, once they are made.
            r"TestTrainer::test_(multiple_compiles|nested_trainer_metrics)",
            # Boxes follow their images.
            r"RandomCropTest::test_dict_input|test_random_shear_bounding_boxes_with_\w+_shift",
            # Dtype policies of quantized layers, and calls of such layers.
            r"LayerTest::test_serialize_dtype|test_legacy_load_own_variables|OperationTest::test_rematerialized_call",
            # Shapes of symbolic tensors are those of arrays; sizes that may differ are unknown; equations must fit.
            r"DynamicShapeTest::test_(corrcoef|diag|[dhv]split)$|test_slogdet|test_einsum_dense_constraints",
            r"test_while_loop_output_spec|test_conv_input_channel_validation",
            # `istft` divides by the sum of the squared windows, so that it inverts `stft`.
            r"MathOpsCorrectnessTest::test_istft6",
            # A config has the vocabulary that was read; arguments are not written to.
            r"StringLookupTest::test_vocabulary_file|TestImageNetUtils::test_preprocess_input$",
        )
    )
)
"""Tests that ask for what docs/differences.md decides otherwise."""
PRIVATE_TESTS = re.compile(
    r"test_fit_eval_flow_for_jax_model_weights|MuonTest::test_(Newton|lr_adjust)|MultiProcessInitializeTest::"
    r"|test_list_loss_dict_data|GetFileTest::test_copy|test_TensorBoard_non_blocking|test_create_with_list_devices"
    r"|DistributionTest::test_data_shard_id|test_get_variable_layout_with_explicit_layout|test_unsupported_type_multi"
    r"|test_early_stopping_final_weights_when_restoring_model_weights"
    r"|test_deferred_(initialization|assignment)|test_(remat_larger_than_mode|remat_wrapper_list_of_layers)$"
    r"|test_(functional_model|layer)_with_remat|OperationTest::test_class_function_consistency_"
    r"|ConvLSTMTest::test_correctness|test_jit_fit_with_out_shardings_logic_distributed|test_distiller_initialization"
    r"|ModelParallelDistributionTest::test_distribute_weights|TfDatasetDistributionTest|test_save_h5_format"
    r"|JaxDistributionLibTest::test_initialize_with_|test_save_model_exception_raised_\w+_memory_config"
)
"""Tests of private methods, or with stand-ins for parts of the peer."""
NEEDS_TESTS = re.compile(
    r"torch_(utils|data_loader_adapter)_test|tf_saved_model|'Loader' object has no attribute 'take'"
    r"|text_dataset_from_directory_\w*(tf|grain)\b"
)
"""Names of tests, or errors, about TensorFlow's and PyTorch's objects."""
WORDS = re.compile(
    r"ReprTest|test_repr|test_warning_for_mismatched_inputs_structure"
    r"|<Signature|\+------|Warning not triggered|DID NOT WARN|Regex pattern did not match"
    r"|not found in|did not match|Exception message does not match|^AssertionError: [-+] ",
    re.I,
)


def read(path: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Read outcomes by test; a failure in setup or teardown outweighs a call that passed."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        record = json.loads(line)
        before = found.get(record["id"])
        if before and before["outcome"] == "failed" and before.get("when") != record.get("when"):
            continue
        found[record["id"]] = record
    collected = {test.partition("::")[0] for test in found if "::" in test}
    return {test: each for test, each in found.items() if each["outcome"] != "not collected" or test not in collected}


def classify(record: dict[str, Any]) -> str:
    """Return the class of one outcome."""
    if record["outcome"] == "skipped":
        return "skipped"
    if record["outcome"] == "passed":
        return _classify_notes(record.get("notes", []))
    error = record["error"]
    if NEEDS.search(error) or NEEDS_TESTS.search(f"{record['id']} {error}"):
        return "needs"
    if PRIVATE.search(error) or PRIVATE_TESTS.search(record["id"]):
        return "private"
    if DECIDED_TESTS.search(record["id"]):
        return "decided"
    if DECIDED.search(error) or (SYMBOLIC.search(record["id"]) and DECIDED_OF_SYMBOLS.search(error)):
        return "decided"
    if QUANTIZATION.search(record["id"]) or QUANTIZATION.search(error.partition("\n")[0]):
        return "decided"
    if ABSENT.search(error):
        return "absent"
    return "words" if WORDS.search(error) or WORDS.search(record["id"]) else "behaviour"


def _classify_notes(notes: list[list[str]]) -> str:
    kinds = {note[0] for note in notes}
    if not kinds:
        return "passed"
    if "not raised" in kinds:
        return "accepts"
    if "class" in kinds:
        others = [note for note in notes if note[0] == "class"]
        own = all("flax.errors" in expected or "haiku._src" in expected for _, expected, _ in others)
        return "words" if own else "class"
    return "words"


def sort_outcomes(folder: pathlib.Path) -> dict[str, list[tuple[str, str]]]:
    """Return the tests of each class with their errors, from the outcomes on Weft and, where measured, on the peer."""
    fails_on_peer = {test for test, each in read(folder / "peer.jsonl").items() if each["outcome"] == "failed"}
    found: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    for test, record in read(folder / "weft.jsonl").items():
        kind = classify(record)
        if kind == "behaviour" and test in fails_on_peer:
            kind = "needs"
        text = record.get("error") or json.dumps(record.get("notes", []))
        found[kind].append((test, text.replace("\n", " | ")[:300]))
    return found


def table(folders: list[pathlib.Path]) -> str:
    """Format counts of all classes, a row a library."""
    lines = ["| library | tests | " + " | ".join(CLASSES) + " |", "|---" * (len(CLASSES) + 2) + "|"]
    for folder in folders:
        found = sort_outcomes(folder)
        counts = [len(found.get(kind, ())) for kind in CLASSES]
        lines.append(f"| {folder.name} | {sum(counts)} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines)


def write_failures(folder: pathlib.Path) -> pathlib.Path:
    """Write the tests that did not pass, by class, and return the file."""
    lines = []
    for kind, tests in sorted(sort_outcomes(folder).items()):
        if kind not in ("passed", "skipped"):
            lines.append(f"== {kind} {len(tests)}")
            lines += [f"{test}\n      {text}" for test, text in sorted(tests)]
    path = folder / "failures.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
