"""Bytes that a training step sends on eight devices, by the partitioner's own account, beside those of JAX.

    python benchmarks/partitioned_bytes.py

The steps are those of an MLP and of a transformer, without any constraint inside: data parallel, parameters stored
split (fsdp), tensor parallel, and both. Nothing is run. JAX's figures are of version 0.10.2 for the same steps: bytes
that one device sends, read off the collectives of the compiled program.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import mesh_models
from mesh_models import step_of, transformer_specs

import weft
from weft.compiler.partition.driver import prepare
from weft.compiler.partition.partition import PartitionedJaxpr, partition
from weft.sharding.spec import spec_dims

P = weft.P
JAX = {
    ("mlp", "dp"): 7.35,
    ("mlp", "fsdp"): 7.75,
    ("mlp", "tp"): 2.75,
    ("mlp", "fsdp x tp"): 4.86,
    ("transformer", "dp"): 5.97,
    ("transformer", "fsdp"): 57.70,
    ("transformer", "tp"): 23.88,
    ("transformer", "fsdp x tp"): 32.20,
}


class Step(NamedTuple):
    """Training step, with the shardings of its parameters and its batch over a mesh with these axes."""

    model: str
    label: str
    function: Callable[..., Any]
    params: Any
    batch: Any
    specs: Any
    batch_spec: Any
    mesh: Mapping[str, int]


def mlp(devices: int) -> Iterator[Step]:
    loss, params, batch = mesh_models.mlp(weft)

    def specs(weights: Sequence[Any], biases: Sequence[Any]) -> Any:
        """Return the specs of even and of odd layers."""
        return [{"w": weights[i % 2], "b": biases[i % 2]} for i in range(len(params))]

    one, two = {"d": devices}, {"d": devices // 2, "t": 2}
    for label, own, batch_spec, mesh in (
        ("dp", specs([P()] * 2, [P()] * 2), P("d"), one),
        ("fsdp", specs([P("d")] * 2, [P("d")] * 2), P("d"), one),
        ("tp", specs([P(None, "d"), P("d")], [P("d"), P()]), P(), one),
        ("fsdp x tp", specs([P("d", "t"), P("t", "d")], [P("t"), P("d")]), P("d"), two),
    ):
        yield Step("mlp", label, step_of(weft, loss), params, batch, own, (batch_spec,) * 2, mesh)


def transformer(devices: int) -> Iterator[Step]:
    loss, params, tokens = mesh_models.transformer(weft)
    one, two = {"d": devices}, {"d": devices // 2, "t": 2}
    for label, axes, batch_spec, mesh in (
        ("dp", (None, None), P("d"), one),
        ("fsdp", ("d", None), P("d"), one),
        ("tp", (None, "d"), P(), one),
        ("fsdp x tp", ("d", "t"), P("d"), two),
    ):
        own = transformer_specs(P, *axes)
        yield Step("transformer", label, step_of(weft, loss), params, tokens, own, batch_spec, mesh)


def partitioned(step: Step) -> tuple[PartitionedJaxpr, int, float]:
    """Return the program of one device, the number of equations it was made of, and the seconds that took."""
    jaxpr = prepare(weft.make_jaxpr(step.function)(step.params, step.batch))
    flat = [s for s in weft.tree_util.tree_leaves((step.specs, step.batch_spec), is_leaf=lambda x: isinstance(x, P))]
    state = len(weft.tree_util.tree_leaves(step.params))
    in_dims = [spec_dims(s, len(v.aval.shape)) for s, v in zip(flat, jaxpr.invars, strict=True)]  # type: ignore[attr-defined]
    stored = [i < state for i in range(len(in_dims))]
    start = time.perf_counter()
    result = partition(jaxpr, step.mesh, in_dims, [*in_dims[:state], ()], stored)
    return result, len(jaxpr.eqns), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", type=int, default=8)
    devices = parser.parse_args().devices
    for step in (*mlp(devices), *transformer(devices)):
        result, equations, seconds = partitioned(step)
        megabytes = sum(c.bytes for c in result.communication) / 1e6
        kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(c.kind for c in result.communication).items())
        peer = f"JAX {JAX[step.model, step.label]:6.2f}" if devices == 8 else ""
        print(
            f"{step.model:12} {step.label:10} {megabytes:7.3f} MB  {peer}  "
            f"{seconds / equations * 1e6:4.0f} us an equation ({equations})  {kinds}"
        )


if __name__ == "__main__":
    main()
