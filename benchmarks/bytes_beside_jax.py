"""Bytes that programs on eight devices send, beside JAX: a table of named programs and a random search.

    python benchmarks/bytes_beside_jax.py [--search 50] [--seed 0] [--limit 1.05] [--only text]

Nothing is run. Weft's bytes are those of its plan (`weft.plan` says the same); JAX's are read off the compiled HLO of
eight forced CPU devices with the formulas of ring collectives, bodies of loops counted as often as they run. A batch
that does not split evenly is one for Weft; JAX takes no such argument, so its row has the next even batch. Exits with
an error if Weft sends more than `--limit` times the bytes of JAX anywhere.

JAX compiles in a process of its own, for which `--python` is the interpreter (default: this one).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from wire_programs import Case, build, draw

DEVICES = 8
# Bytes that count as nothing: a scalar loss, whose sum one library may have twice.
SLACK = 64

STEPS = [
    *(Case("mlp", way, "sgd") for way in ("dp", "fsdp", "tp")),
    Case("mlp", "fsdp_tp", "sgd", mesh=(4, 2)),
    *(Case("transformer", way, "adam", 2, 16) for way in ("dp", "fsdp", "tp", "zero1")),
    Case("transformer", "fsdp_tp", "adam", 2, 16, (4, 2)),
    Case("mlp", "dp", "sgd", accumulate=4),
]
BASE = [
    *STEPS,
    *(Case("mlp", "fsdp", "forward", batch=n) for n in (64, 4096)),
    Case("mlp", "fsdp", "loss", batch=4096),
    *(Case("dense", way, "forward", 1, 4096) for way in ("fsdp", "fsdp_first")),
    Case("transformer", "fsdp_first", "sgd", 2, 16),
    Case("transformer", "fsdp", "loss", 2, 64),
    Case("transformer", "fsdp_tp", "loss", 2, 64, (4, 2)),
    Case("mlp", "dp", "grad", batch=4096, remat=True),
    *(
        Case("mlp", "fsdp", "sgd", 6, n, remat=remat, scan=scan)
        for n in (32, 512, 4096, 32768)
        for remat in (False, True)
        for scan in (False, True)
    ),
    *(replace(case, remat=True) for case in STEPS),
    *(replace(case, scan=True) for case in STEPS),
    *(replace(case, remat=True, scan=True) for case in STEPS),
    *(replace(case, batch=case.batch + 2) for case in STEPS if case.accumulate == 1),
    *(replace(case, run="loss") for case in STEPS if case.accumulate == 1),
    *(Case("transformer", "fsdp_tp", "adam", 2, n, (4, 2)) for n in (64, 66)),
]


def weft_bytes(case: Case) -> tuple[float, dict[str, float]]:
    """Return the bytes that one device sends in Weft's program, in all and by the kind of the collective."""
    import weft
    from weft.plan import Staged

    built = build(weft, case)
    staged = Staged(built.function, built.shapes, weft.sharding.AbstractMesh(*axes(case)))
    found = staged.partition_for(staged.in_dims(built.specs), staged.out_dims(None))
    kinds: dict[str, float] = {}
    for row in found.communication:
        kinds[row.kind] = kinds.get(row.kind, 0) + row.total_bytes
    return sum(kinds.values()), kinds


def axes(case: Case) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the sizes and names of the axes of a case's mesh."""
    return (case.mesh, ("d", "t")) if case.mesh[1] > 1 else (case.mesh[:1], ("d",))


def jax_bytes(case: Case) -> tuple[float, dict[str, float]]:
    """Return the bytes that one device sends in JAX's compiled program."""
    import jax

    built = build(jax, case.even())
    mesh = jax.make_mesh(*axes(case), (jax.sharding.AxisType.Auto,) * len(axes(case)[0]))
    named = lambda spec: jax.sharding.NamedSharding(mesh, spec)
    specs = jax.tree.map(named, built.specs, is_leaf=lambda x: isinstance(x, jax.sharding.PartitionSpec))
    lowered = jax.jit(built.function, in_shardings=specs).lower(*built.shapes)
    kinds = hlo_bytes(lowered.compile(compiler_options={"xla_backend_optimization_level": 0}).as_text())
    return sum(kinds.values()), kinds


SIZES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1, "bf16": 2, "f16": 2, "f64": 8, "s64": 8, "u8": 1, "s8": 1}
COLLECTIVE = re.compile(r" = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


def hlo_bytes(text: str) -> dict[str, float]:
    """Return the bytes that a device sends in a compiled HLO module, by the kind of the collective."""
    bodies: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            name = head[2]
            entry = name if head[1] else entry
            bodies[name] = []
        elif name:
            bodies[name].append(line)

    def total(name: str, times: float, found: dict[str, float]) -> dict[str, float]:
        for line in bodies.get(name, ()):
            collective = COLLECTIVE.search(line)
            if collective:
                kind = collective[2]
                found[kind] = found.get(kind, 0) + times * sent(kind, collective[1], line)
            for called in re.findall(r"(?:body|calls|to_apply|branch_computations)=\{?%?([\w.\-]+)", line):
                count = re.search(r'"known_trip_count":\{"n":"(\d+)"', line) if "body=" in line else None
                if not collective:
                    total(called, times * (int(count[1]) if count else 1), found)
        return found

    return total(entry, 1.0, {})


def sent(kind: str, result: str, line: str) -> float:
    """Return the bytes that a device sends in one collective with results of these types."""
    size = sum(
        SIZES[t] * math.prod(int(d) for d in dims.split(",") if d)
        for t, dims in re.findall(r"(\w+)\[([\d,]*)\]", result)
    )
    groups = re.search(r"replica_groups=(?:\{\{([\d,]+)\}|\[(\d+),(\d+)\])", line)
    n = DEVICES if groups is None else len(groups[1].split(",")) if groups[1] else int(groups[3])
    match kind:
        case "all-reduce":
            return 2 * size * (n - 1) / n
        case "reduce-scatter":
            return size * (n - 1)
        case "collective-permute":
            return size
        case _:
            return size * (n - 1) / n


def beside_jax(cases: Sequence[Case], python: str) -> Iterator[dict[str, Any]]:
    """Yield JAX's result for each case, from another process."""
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
        "JAX_PLATFORMS": "cpu",
    }
    environment.pop("PYTHONPATH", None)
    with subprocess.Popen(
        [python, __file__, "--jax"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for case in cases:
            process.stdin.write(json.dumps(asdict(case)) + "\n")
            process.stdin.flush()
            yield json.loads(process.stdout.readline())
        process.stdin.close()


def serve() -> None:
    """Answer descriptions of cases on standard input with JAX's bytes."""
    for line in sys.stdin:
        fields = json.loads(line)
        count, kinds = jax_bytes(Case(**{**fields, "mesh": tuple(fields["mesh"])}))
        print(json.dumps({"bytes": count, "kinds": kinds}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--search", type=int, default=0, help="number of random programs besides the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=1.05)
    parser.add_argument("--only", default="", help="only the programs with this text in their description")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has JAX")
    parser.add_argument("--store", help="a JSON file with JAX's figures, read and extended")
    parser.add_argument("--jax", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.jax:
        serve()
        return
    cases = [*BASE, *(draw(options.seed + i) for i in range(options.search))]
    cases = [case for case in dict.fromkeys(cases) if options.only in str(case)]
    file = pathlib.Path(options.store) if options.store else None
    stored = json.loads(file.read_text()) if file is not None and file.exists() else {}
    peers = beside_jax([case for case in cases if str(case) not in stored], options.python)
    over = 0
    for case in cases:
        own, kinds = weft_bytes(case)
        if str(case) not in stored:
            stored[str(case)] = next(peers)
            if file is not None:
                file.write_text(json.dumps(stored, indent=0))
        theirs = stored[str(case)]["bytes"]
        ratio = (own + SLACK) / (theirs + SLACK)
        bad = ratio > options.limit
        over += bad
        text = ", ".join(f"{kind} {size:.0f}" for kind, size in kinds.items())
        print(f"{case!s:72} {own:13.0f} {theirs:13.0f} {ratio:6.2f} {'OVER' if bad else '    '}  {text}", flush=True)
    print(f"{over} of {len(cases)} programs send more than {options.limit} times the bytes of JAX")
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
