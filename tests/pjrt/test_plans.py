"""Plans by the compiler of TPUs, on machines without one: memory, code, and what does not fit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from benchmarks.gpt2_step import gpt2
from weft import P, ShapeDtypeStruct, errors, linen, optim
from weft.runtime.pjrt.plugins import find_plugin
from weft.sharding import AbstractMesh

pytestmark = pytest.mark.skipif(find_plugin("tpu") is None, reason="libtpu is not installed")
TOPOLOGY = "v5e:2x4"


def shape(*sizes: int, dtype: Any = np.float32) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(sizes, dtype)


def loss(w: Any, x: Any) -> Any:
    return wnp.mean(wnp.tanh(x @ w) ** 2)


def test_one_device() -> None:
    plan = weft.plan(weft.value_and_grad(loss), shape(256, 256), shape(64, 256), topology=TOPOLOGY)
    assert plan.fits and plan.num_devices == 1 and plan.device_kind.startswith("TPU v5") and plan.mesh is None
    size = 4 * 256 * 256
    assert plan.memory.argument_size_in_bytes >= size + 4 * 64 * 256 and plan.memory.output_size_in_bytes >= size
    assert plan.code_bytes > 0 and plan.flops >= 2 * 2 * 64 * 256 * 256 and plan.peak_memory >= 2 * size
    assert "stablehlo.dot_general" in plan.text and "v5e:2x4" in repr(plan) and "MB" in repr(plan)


def test_donated_memory_is_used_again() -> None:
    update = lambda w, g: w - 0.1 * g
    for donated, aliased in ((None, 0), (0, 4 * 512 * 512)):
        plan = weft.plan(update, shape(512, 512), shape(512, 512), topology=TOPOLOGY, donate_argnums=donated)
        assert plan.memory.alias_size_in_bytes == aliased


def test_meshes_have_collectives() -> None:
    mesh = AbstractMesh((2, 4), ("d", "t"))
    shardings = (P(None, "t"), P("d", None))
    plan = weft.plan(
        weft.grad(loss), shape(256, 256), shape(64, 256), topology=TOPOLOGY, mesh=mesh, in_shardings=shardings
    )
    assert plan.num_devices == 8 and plan.communication.counts()["psum"] >= 1 and "stablehlo.all_reduce" in plan.text
    assert [s.spec for s in plan.in_shardings] == [P(None, "t"), P("d", None)]
    whole = weft.plan(weft.grad(loss), shape(256, 256), shape(64, 256), topology=TOPOLOGY)
    assert plan.memory.argument_size_in_bytes < whole.memory.argument_size_in_bytes / 3


def test_every_collective_compiles() -> None:
    from weft import lax

    mesh = AbstractMesh((8,), ("d",))

    def f(x: Any) -> Any:
        gathered = lax.all_gather(x, "d", tiled=True)
        moved = lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)])
        turned = lax.all_to_all(gathered, "d", 0, 0, tiled=True)
        return lax.psum(x, "d") + moved + lax.psum_scatter(turned, "d", tiled=True) + lax.axis_index("d")

    mapped = weft.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    plan = weft.plan(mapped, shape(64, 128), topology=TOPOLOGY, mesh=mesh)
    assert plan.fits and all(f"stablehlo.{name}" in plan.text for name in ("all_gather", "collective_permute"))


def test_what_does_not_fit_has_the_message_of_the_compiler() -> None:
    plan = weft.plan(lambda x: wnp.sin(x) @ x + x @ x.T, shape(60_000, 60_000), topology=TOPOLOGY)
    assert not plan.fits and plan.memory is None and plan.peak_memory is None
    assert "memory" in plan.out_of_memory and "exceeds" in plan.out_of_memory and "does not fit" in repr(plan)


def test_mistakes() -> None:
    for topology in ("v9z:1x1", "nonsense"):
        with pytest.raises(errors.ArgumentError, match="topology must be one"):
            weft.plan(wnp.sin, shape(4), topology=topology)
    with pytest.raises(errors.ArgumentError, match="more devices than the topology"):
        weft.plan(wnp.sin, shape(16), topology=TOPOLOGY, mesh=AbstractMesh((16,), ("d",)))
    with pytest.raises(errors.NotSupportedError, match="callback") as caught:
        weft.plan(lambda x: weft.pure_callback(np.sin, x, x), shape(4), topology=TOPOLOGY)
    assert "test_plans.py" in str(caught.value)
    with pytest.raises(errors.ArgumentTypeError, match="needs a mesh"):
        weft.plan(wnp.sin, shape(4))
    with pytest.raises(RuntimeError, match="no PCI device"):
        weft.devices("tpu")


def test_two_processes_plan_at_once() -> None:
    script = """
    import numpy as np, weft, weft.numpy as wnp
    plan = weft.plan(lambda x: x @ x, weft.ShapeDtypeStruct((256, 256), np.float32), topology="v5e:2x4")
    print(plan.fits)
    """
    start = lambda: subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert [process.communicate()[0].strip() for process in [start(), start()]] == ["True", "True"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "mesh", "specs"),
    [
        ("v5e:2x4", None, None),
        ("v5p:2x2x1", None, None),
        ("v5e:4x4", (("data", 16),), (P("data"), P("data"))),
        ("v5p:2x2x4", (("data", 4), ("model", 4)), (P("data", "model"), P("data"))),
    ],
    ids=["v5e", "v5p", "16 chips of v5e, sharded state", "16 chips of v5p, two axes"],
)
def test_a_training_step_of_gpt2_small(topology: str, mesh: Any, specs: Any) -> None:
    batch, length = 16, 1024
    model, transformation = gpt2(weft, wnp, linen, 12, 768, length), optim.adamw(3e-4)

    def step(parameters: Any, state: Any, tokens: Any) -> Any:
        def loss(parameters: Any) -> Any:
            logits = model.apply(parameters, tokens[:, :-1]).astype(wnp.float32)
            return optim.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        value, gradients = weft.value_and_grad(loss)(parameters)
        updates, state = transformation.update(gradients, state, parameters)
        return optim.apply_updates(parameters, updates), state, value

    tokens = shape(batch, length + 1, dtype=np.int32)
    parameters = weft.eval_shape(model.init, weft.random.key(0), shape(1, length, dtype=np.int32))
    state = weft.eval_shape(transformation.init, parameters)
    count = sum(leaf.size for leaf in weft.tree.leaves(parameters))
    assert 123e6 < count < 126e6
    options: dict[str, Any] = {"topology": topology, "donate_argnums": (0, 1)}
    if mesh is not None:
        axes = AbstractMesh(tuple(size for _, size in mesh), tuple(name for name, _ in mesh))
        split = lambda tree: weft.tree.map(lambda leaf: P(*specs[0][: leaf.ndim]), tree)
        options |= {"mesh": axes, "in_shardings": (split(parameters), split(state), specs[1])}
    plan = weft.plan(step, parameters, state, tokens, **options)
    assert plan.fits, plan.out_of_memory
    print(f"{topology}: {plan!r}")
    devices = 1 if mesh is None else 16
    assert plan.num_devices == devices and plan.flops > 0.8 * 6 * count * batch * length / devices
    # Parameters and both moments, donated.
    assert 0.9 < plan.memory.alias_size_in_bytes / (3 * 4 * count / (devices if devices > 1 else 1)) < 1.3
    if mesh is not None:
        assert plan.communication.total_bytes > 2 * 4 * count / devices
