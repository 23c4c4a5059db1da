"""Programs on 8 virtual CPU devices beside JAX: dispatch, collectives, and training steps under common shardings.

    python benchmarks/many_devices.py [--only dispatch,steps] [--rounds 3] [--json out.json]

JAX fixes its number of devices when it is loaded, so each library runs in a process of its own; the processes take
turns, and each line shows the best of its rounds. A ratio below 1 says that Weft is quicker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

DEVICES = 8


def load(library: str) -> Any:
    """JAX or Weft with its devices."""
    if library == "jax":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        return jax
    os.environ["WEFT_NUM_CPU_DEVICES"] = str(DEVICES)
    os.environ["WEFT_COMPILATION_CACHE"] = "0"  # first calls compile everything, as those of JAX do
    import weft

    return weft


def best(lib: Any, function: Callable[..., Any], *args: Any, seconds: float = 0.4, calls: int | None = None) -> float:
    """Seconds of the quickest call, of those in so many seconds or of so many."""
    for _ in range(3):
        lib.block_until_ready(function(*args))
    found, end, count = float("inf"), time.perf_counter() + seconds, 0
    while count < calls if calls else count < 10 or time.perf_counter() < end:
        start = time.perf_counter()
        lib.block_until_ready(function(*args))
        found = min(found, time.perf_counter() - start)
        count += 1
    return found


def mesh_of(lib: Any, shape: tuple[int, ...], names: tuple[str, ...]) -> Any:
    return lib.make_mesh(shape, names, (lib.sharding.AxisType.Auto,) * len(names))


def dispatch(lib: Any) -> Iterator[tuple[str, float]]:
    """Calls of small programs, and collectives of 32 bytes a device."""
    lax, P = lib.lax, lib.sharding.PartitionSpec
    mesh = mesh_of(lib, (DEVICES,), ("d",))
    split = lib.sharding.NamedSharding(mesh, P("d"))
    x = lib.device_put(np.arange(8.0 * DEVICES, dtype=np.float32).reshape(DEVICES, 8), split)
    yield "jit x + 1, split", best(lib, lib.jit(lambda x: x + 1), x)
    many = [lib.device_put(np.full((DEVICES, 8), i, np.float32), split) for i in range(40)]
    yield "jit of 40 arrays, split", best(lib, lib.jit(lambda xs: [x + 1 for x in xs]), many)

    def mapped(body: Callable[..., Any], out: Any) -> Any:
        options = {"mesh": mesh, "in_specs": P("d"), "out_specs": out, "check_vma": False}
        return lib.jit(lib.shard_map(body, **options))

    yield "psum of 32 B, a call", best(lib, mapped(lambda x: lax.psum(x, "d"), P()), x)

    def in_a_row(x: Any) -> Any:
        for _ in range(20):
            x = lax.psum(x * 0.1, "d")
        return x

    yield "psum of 32 B, one of 20 in a program", best(lib, mapped(in_a_row, P()), x) / 20

    def in_a_scan(x: Any) -> Any:
        return lax.scan(lambda c, _: (lax.psum(c * 0.1, "d"), None), x, None, length=200)[0]

    yield "psum of 32 B, an iteration of a scan", best(lib, mapped(in_a_scan, P()), x) / 200
    large = lib.device_put(np.ones((DEVICES, 1 << 20), np.float32), split)
    yield "psum of 4 MB", best(lib, mapped(lambda x: lax.psum(x, "d"), P()), large)
    ring = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]
    yield "ppermute of 32 B, a call", best(lib, mapped(lambda x: lax.ppermute(x, "d", ring), P("d")), x)
    if hasattr(lib, "pmap"):
        yield "pmap x + 1", best(lib, lib.pmap(lambda x: x + 1), x)
    whole = np.ones((DEVICES, 1 << 15), np.float32)
    yield "device_put of 1 MB to 8 devices", best(lib, lambda: lib.device_put(whole, split))


def step_of(lib: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Any, batch: Any) -> Any:
        value, gradients = lib.value_and_grad(loss)(params, batch)
        return lib.tree_util.tree_map(lambda p, g: p - 0.01 * g, params, gradients), value

    return step


def mlp(lib: Any) -> tuple[Any, Any, Any, Any]:
    """A loss, parameters, a batch, and specs: by which axes (data, tensor) the parameters are split."""
    size, layers, rows = 512, 4, 256
    random = np.random.default_rng(0)
    normal = lambda *shape: (random.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32)
    params = [{"w": normal(size, size), "b": np.zeros(size, np.float32)} for _ in range(layers)]
    batch = (normal(rows, size), normal(rows, size))
    jnp = lib.numpy

    def loss(params: Any, batch: Any) -> Any:
        h, y = batch
        for layer in params:
            h = jnp.tanh(h @ layer["w"] + layer["b"])
        return jnp.mean((h - y) ** 2)

    P = lib.sharding.PartitionSpec

    def specs(f: Any, t: Any) -> Any:
        even, odd = {"w": P(f, t), "b": P(t)}, {"w": P(t, f), "b": P(f)}
        return [even if i % 2 == 0 else odd for i in range(layers)]

    return loss, params, batch, specs


def transformer(lib: Any) -> tuple[Any, Any, Any, Any]:
    vocabulary, size, heads, length, hidden, layers, rows = 256, 128, 8, 64, 512, 4, 16
    random = np.random.default_rng(0)
    normal = lambda *shape: (random.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32)
    head = size // heads
    layer = lambda: {
        **{name: normal(size, heads, head) for name in ("q", "k", "v")},
        **{"o": normal(heads, head, size), "up": normal(size, hidden), "down": normal(hidden, size)},
        **{name: np.ones(size, np.float32) for name in ("n1", "n2")},
    }
    params = {"embedding": normal(vocabulary, size), "layers": [layer() for _ in range(layers)]}
    tokens = random.integers(0, vocabulary, (rows, length)).astype(np.int32)
    jnp, lax = lib.numpy, lib.lax

    def norm(x: Any, scale: Any) -> Any:
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale

    def loss(params: Any, tokens: Any) -> Any:
        x, mask = params["embedding"][tokens], jnp.tril(jnp.ones((length, length), bool))
        for p in params["layers"]:
            h = norm(x, p["n1"])
            q, k, v = (jnp.einsum("btd,dhk->bhtk", h, p[name]) for name in "qkv")
            scores = jnp.where(mask, jnp.einsum("bhtk,bhsk->bhts", q, k) * head**-0.5, -1e9)
            scores = jnp.exp(scores - lax.stop_gradient(scores.max(-1, keepdims=True)))
            scores = scores / scores.sum(-1, keepdims=True)
            x = x + jnp.einsum("bhtk,hkd->btd", jnp.einsum("bhts,bhsk->bhtk", scores, v), p["o"])
            x = x + jnp.maximum(norm(x, p["n2"]) @ p["up"], 0) @ p["down"]
        logits = x @ params["embedding"].T
        logits = logits - lax.stop_gradient(logits.max(-1, keepdims=True))
        logs = logits - jnp.log(jnp.exp(logits).sum(-1, keepdims=True))
        return -jnp.mean(jnp.take_along_axis(logs[:, :-1], tokens[:, 1:, None], -1))

    P = lib.sharding.PartitionSpec

    def specs(f: Any, t: Any) -> Any:
        own = {"q": P(f, t), "k": P(f, t), "v": P(f, t), "o": P(t, None, f), "up": P(f, t), "down": P(t, f)}
        return {"embedding": P(t, f), "layers": [{**own, "n1": P(), "n2": P()}] * layers}

    return loss, params, tokens, specs


def steps(lib: Any) -> Iterator[tuple[str, float]]:
    """One training step, and the time to its first result, under the usual ways of splitting."""
    P, tree = lib.sharding.PartitionSpec, lib.tree_util
    for name, model in (("MLP", mlp), ("transformer", transformer)):
        loss, params, batch, specs = model(lib)
        for way, shape, axes, by, batch_spec in (
            ("DP", (DEVICES,), ("d",), (None, None), P("d")),
            ("FSDP", (DEVICES,), ("d",), ("d", None), P("d")),
            ("TP", (DEVICES,), ("t",), (None, "t"), P()),
            ("FSDP x TP", (DEVICES // 2, 2), ("d", "t"), ("d", "t"), P("d")),
        ):
            mesh = mesh_of(lib, shape, axes)
            named = lambda spec, mesh=mesh: lib.sharding.NamedSharding(mesh, spec)
            is_spec = lambda x: isinstance(x, P)
            shardings = tree.tree_map(named, specs(*by), is_leaf=is_spec)
            there = tree.tree_map(lib.device_put, params, shardings)
            data = lib.device_put(batch, named(batch_spec))
            step = lib.jit(step_of(lib, loss), out_shardings=(shardings, named(P())))
            start = time.perf_counter()
            lib.block_until_ready(step(there, data))
            yield f"{name} {way}: first call", time.perf_counter() - start
            yield f"{name} {way}: step", best(lib, step, there, data, seconds=1.0)


GROUPS = {"dispatch": dispatch, "steps": steps}


def measure(library: str, groups: list[str]) -> dict[str, float]:
    lib = load(library)
    return {name: seconds for group in groups for name, seconds in GROUPS[group](lib)}


def in_process(library: str, only: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--library", library, "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{library} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--library", help="measure one library in this process and print JSON")
    options = parser.parse_args()
    if options.library:
        print(json.dumps(measure(options.library, options.only.split(","))))
        return
    found: dict[str, dict[str, float]] = {"weft": {}, "jax": {}}
    for _ in range(options.rounds):
        for library, rows in found.items():
            for name, seconds in in_process(library, options.only).items():
                rows[name] = min(seconds, rows.get(name, seconds))
    print(f"{'':<44}{'Weft':>12}{'JAX':>12}{'ratio':>8}")
    for name, seconds in found["weft"].items():
        other = found["jax"].get(name)
        if other is not None:
            print(f"{name:<44}{seconds * 1e6:>10.1f}us{other * 1e6:>10.1f}us{seconds / other:>8.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
