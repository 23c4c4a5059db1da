"""Knowledge of one primitive is in its class: few other files test which primitive an equation has."""

from __future__ import annotations

import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("ir", "transforms", "compiler", "runtime", "explain", "profiler")

# The files that compare an equation's primitive with one of their own choice, how often, and why. The numbers may only
# go down: what several primitives have is a rule or a class (docs/design/primitive.md), not a list of names.
ALLOWED = {
    # Rewriting rules over several operations, which are not about one of them.
    "weft/compiler/patterns.py": 2,
    "weft/compiler/rewrite.py": 2,
    "weft/compiler/passes/accumulate.py": 1,
    "weft/compiler/passes/canonicalize.py": 1,
    "weft/compiler/passes/flags.py": 4,
    "weft/compiler/passes/index_checks.py": 3,
    "weft/compiler/passes/fold_constants.py": 1,
    "weft/compiler/passes/hoist.py": 3,
    "weft/compiler/passes/orient.py": 3,
    "weft/compiler/passes/split_transforms.py": 1,
    "weft/compiler/pipeline.py": 1,
    # What only one operation is: a division, a rounding, a barrier, a `shard_map`.
    "weft/compiler/partition/carries.py": 3,
    "weft/compiler/partition/bodies.py": 4,
    "weft/compiler/partition/partition.py": 2,
    "weft/compiler/partition/propagate.py": 1,
    "weft/compiler/partition/rules.py": 2,
    "weft/compiler/partition/verify.py": 1,
    "weft/compiler/passes/choose_platform.py": 1,
    "weft/compiler/passes/merge_equal.py": 1,
    "weft/compiler/program/prepared.py": 1,
    "weft/compiler/target/evaluation.py": 1,
    "weft/transforms/functionalize.py": 1,
    "weft/transforms/masked.py": 1,
    "weft/transforms/taylor.py": 1,
    # `check` and `fusion` are made by passes, for passes.
    "weft/compiler/passes/checks.py": 2,
    "weft/compiler/fuse/driver.py": 1,
    "weft/compiler/fuse/fusion.py": 2,
    "weft/compiler/fuse/report.py": 3,
    "weft/compiler/fuse/verify.py": 3,
    "weft/compiler/fuse/cost.py": 1,
    "weft/compiler/analysis.py": 1,
    "weft/compiler/provenance.py": 1,
    "weft/explain/collect.py": 2,
    # The verifier recognises what the partitioner writes (slices at the own position); it does not use their rules.
    "weft/compiler/partition/shard_states.py": 10,
    # Emitters of heroes.
    "weft/compiler/emit/maps/gather.py": 1,
    "weft/compiler/emit/sorts/sort_rows.py": 1,
    "weft/compiler/emit/maps/tile.py": 2,
    "weft/compiler/emit/windows/window.py": 1,
    # One rule of two operations, whose texts differ in a word.
    "weft/compiler/target/stablehlo/elementwise.py": 1,
    "weft/compiler/target/stablehlo/movement.py": 1,
    "weft/compiler/target/stablehlo/reduction.py": 1,
    "weft/compiler/target/stablehlo/special.py": 1,
    # Which operations of libraries a program without libraries has by definitions: LAPACK's, or only transforms.
    "weft/compiler/target/cpu/standalone/definitions.py": 2,
    # Steps of programs, and who computes contractions.
    "weft/compiler/program/build.py": 4,
    "weft/compiler/target/cpu/library/planning.py": 1,
    "weft/compiler/target/cuda/library/planning.py": 1,
    "weft/compiler/target/cuda/library/composites.py": 1,  # what its patterns ask
    "weft/compiler/target/cuda/library/attention_patterns.py": 1,  # patterns of built-in operations
    "weft/compiler/schedules.py": 1,
    "weft/runtime/cpu/tuning.py": 2,
    # Calls of `jit`.
    "weft/ir/inline.py": 1,
    "weft/runtime/execute.py": 2,
    "weft/profiler/__init__.py": 1,
}
FILES = sorted(path for folder in FOLDERS for path in (ROOT / "weft" / folder).rglob("*.py"))


def is_primitive(node: ast.expr) -> bool:
    """Return whether an expression is the primitive of an equation, or its name."""
    if isinstance(node, ast.Attribute) and node.attr == "name":
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr == "primitive"
    return isinstance(node, ast.Name) and node.id == "primitive"


def comparisons(source: str) -> list[int]:
    """Return the lines that compare a primitive, or its name, with others: neither with None nor with another
    equation's."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Match) and is_primitive(node.subject):
            found.append(node.lineno)
        if not isinstance(node, ast.Compare) or not is_primitive(node.left):
            continue
        (other,) = node.comparators
        if not is_primitive(other) and not (isinstance(other, ast.Constant) and other.value is None):
            found.append(node.lineno)
    return sorted(found)


def test_primitives_are_not_compared_by_name() -> None:
    found = {path.relative_to(ROOT).as_posix(): comparisons(path.read_text(encoding="utf-8")) for path in FILES}
    more = {name: lines for name, lines in found.items() if len(lines) > ALLOWED.get(name, 0)}
    assert not more, f"{more} are lines that compare primitives: a rule, or a class of its own?"


def test_a_comparison_is_detected() -> None:
    assert comparisons("if e.primitive is add or primitive.name == 'mul': pass\nif primitive in TABLE: pass") == [
        1,
        1,
        2,
    ]
    assert comparisons("if e.primitive is other.primitive or primitive is None: pass") == []
