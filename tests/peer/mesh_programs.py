"""Programs on eight devices as people write them: each is a function of a namespace with one library's modules (`lib`,
`np`, `lax`, `nn`, `optim`, `linen`, `haiku`) and returns a tree of arrays. `PROGRAMS` has all of them by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as onp

PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


def mesh_of(j: Any, *shape: int, names: str = "xyz") -> Any:
    """Make a mesh of as many of the devices as it needs."""
    count = int(onp.prod(shape))
    devices = onp.array(j.lib.devices()[:count]).reshape(shape)
    return j.lib.sharding.Mesh(devices, tuple(names[: len(shape)]))


def named(j: Any, mesh: Any, *spec: Any) -> Any:
    return j.lib.sharding.NamedSharding(mesh, j.P(*spec))


def floats(*shape: int, seed: int = 0) -> onp.ndarray:
    return onp.random.RandomState(seed).randn(*shape).astype(onp.float32)


# ------------------------------------------------------------------------------------------------------------- jit


@program
def matmul_2d(j: Any) -> Any:
    """Run the first page of every tutorial."""
    mesh = mesh_of(j, 4, 2)
    a = j.lib.device_put(floats(16, 8), named(j, mesh, "x", "y"))
    b = j.lib.device_put(floats(8, 24), named(j, mesh, "y", None))
    c = j.lib.jit(j.np.dot, out_shardings=named(j, mesh, "x", None))(a, b)
    return c, [s.data.shape for s in c.addressable_shards], c.sharding.is_fully_replicated


@program
def mlp_by_constraints(j: Any) -> Any:
    mesh = mesh_of(j, 2, 4)
    params = [(floats(12, 16, seed=i) / 4, floats(16, seed=9)) if i == 0 else (floats(16, 12, seed=i) / 4, floats(12))
              for i in range(2)]  # fmt: skip

    def forward(params: Any, x: Any) -> Any:
        for w, b in params:
            x = j.nn.relu(x @ w + b)
            x = j.lax.with_sharding_constraint(x, named(j, mesh, "x", "y"))
        return x

    @j.lib.jit
    def step(params: Any, x: Any) -> Any:
        loss, grads = j.lib.value_and_grad(lambda p: (forward(p, x) ** 2).mean())(params)
        return j.lib.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

    x = j.lib.device_put(floats(8, 12), named(j, mesh, "x"))
    losses = []
    for _ in range(3):
        params, loss = step(params, x)
        losses.append(loss)
    return params, losses


@program
def constraint_under_a_mesh(j: Any) -> Any:
    """Bare specs, in the old style of a `with` block."""
    mesh = mesh_of(j, 4, 2)
    with mesh:
        f = j.lib.jit(lambda x: j.lax.with_sharding_constraint(j.np.sin(x), j.P("x", "y")).sum(0))
        return f(floats(8, 6))


@program
def shardings_as_prefixes(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    split, whole = named(j, mesh, "x"), named(j, mesh)
    f = j.lib.jit(lambda d, y: {"a": d["p"] * y, "b": (d["q"].sum(), y)}, in_shardings=(split, whole),
                  out_shardings={"a": split, "b": None})  # fmt: skip
    out = f({"p": floats(8, 3), "q": floats(16)}, floats(3))
    return out, out["a"].sharding.spec == j.P("x")


@program
def donated_state(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    state = j.lib.device_put({"w": floats(16, 4), "m": onp.zeros((16, 4), onp.float32)}, named(j, mesh, "x"))
    step = j.lib.jit(lambda s, g: {"w": s["w"] - s["m"] * 0.1, "m": 0.9 * s["m"] + g}, donate_argnums=0)
    first = state
    for i in range(3):
        state = step(state, floats(16, 4, seed=i))
    return state, first["w"].is_deleted(), first["m"].is_deleted()


@program
def deleted_arrays_are_errors(j: Any) -> Any:
    x = j.lib.device_put(floats(8), named(j, mesh_of(j, 8), "x"))
    x.delete()
    try:
        x + 1
    except RuntimeError as error:
        return "deleted" in str(error)
    return "no error"


@program
def one_device(j: Any) -> Any:
    mesh = mesh_of(j, 1, 1)
    x = j.lib.device_put(floats(4, 4), named(j, mesh, "x", "y"))
    f = j.lib.jit(lambda x: x @ x.T, out_shardings=named(j, mesh, None, "y"))
    g = j.lib.shard_map(lambda x: j.lax.psum(x, ("x", "y")), mesh=mesh, in_specs=j.P("x", "y"), out_specs=j.P())
    return f(x), g(x), j.lib.jit(g)(x), j.lib.grad(lambda x: g(x).sum())(x), len(x.addressable_shards)


@program
def axes_of_size_one(j: Any) -> Any:
    mesh = mesh_of(j, 8, 1)
    x = j.lib.device_put(floats(8, 3), named(j, mesh, "x", "y"))
    g = j.lib.shard_map(
        lambda x: j.lax.psum(j.lax.all_gather(x, "y", axis=1, tiled=True), "x"),
        mesh=mesh, in_specs=j.P("x", "y"), out_specs=j.P(None, None), check_vma=False,
    )  # fmt: skip
    return j.lib.jit(lambda x: x.sum(0))(x), g(x)


@program
def submesh(j: Any) -> Any:
    devices = onp.array(j.lib.devices())
    odd = j.lib.sharding.Mesh(devices[1::2], ("x",))
    x = j.lib.device_put(floats(8, 2), j.lib.sharding.NamedSharding(odd, j.P("x")))
    y = j.lib.jit(lambda x: j.np.cumsum(x, 0))(x)
    return y, sorted(d.id for d in y.devices())


@program
def two_meshes_of_the_same_devices(j: Any) -> Any:
    one, two = mesh_of(j, 8), mesh_of(j, 4, 2)
    x = j.lib.device_put(floats(8, 8), named(j, one, "x"))
    y = j.lib.device_put(x, named(j, two, "y", "x"))
    f = j.lib.jit(lambda x: x * 2, out_shardings=named(j, two, "x"))
    return y, f(y), j.np.abs(y - j.lib.device_put(f(y), named(j, two, "y", "x")))


@program
def from_one_mesh_to_another(j: Any) -> Any:
    devices = onp.array(j.lib.devices())
    first, second = (j.lib.sharding.Mesh(d, ("x",)) for d in (devices[:4], devices[4:]))
    x = j.lib.device_put(floats(8, 4), j.lib.sharding.NamedSharding(first, j.P("x")))
    y = j.lib.jit(lambda x: x + 1)(x)
    z = j.lib.device_put(y, j.lib.sharding.NamedSharding(second, j.P(None, "x")))
    return j.lib.jit(lambda z: z.sum(0))(z), sorted(d.id for d in z.devices())


@program
def uncommitted_arguments_follow(j: Any) -> Any:
    x = j.lib.device_put(floats(8, 4), named(j, mesh_of(j, 8), "x"))
    return j.lib.jit(lambda a, b, c: a * b + c)(x, floats(4), 2.0), x + j.np.ones(4), x * onp.float32(3), 1 - x


@program
def empty_arrays(j: Any) -> Any:
    mesh = mesh_of(j, 4)
    x = j.lib.device_put(onp.zeros((0, 3), onp.float32), named(j, mesh))
    y = j.lib.device_put(onp.zeros((8, 0), onp.float32), named(j, mesh, "x"))
    g = j.lib.shard_map(lambda y: j.lax.psum(y, "x"), mesh=mesh, in_specs=j.P("x"), out_specs=j.P())
    return j.lib.jit(lambda x: x.sum(0))(x), j.lib.jit(lambda y: y.sum(1))(y), g(y), j.np.concatenate([y, y])


@program
def scalars(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    s = j.lib.device_put(onp.float32(3), named(j, mesh))
    g = j.lib.shard_map(lambda s: j.lax.psum(s, "x"), mesh=mesh, in_specs=j.P(), out_specs=j.P())
    return s * 2, j.lib.jit(lambda s: s.astype(int))(s), g(s), j.lib.grad(lambda s: g(s) ** 2)(2.0)


@program
def trees_with_none(j: Any) -> Any:
    mesh = mesh_of(j, 4)
    tree = {"a": floats(8), "b": None, "c": [None, floats(4, 2)], "d": ()}
    put = j.lib.device_put(tree, named(j, mesh, "x"))
    f = j.lib.shard_map(lambda t: {**t, "a": j.lax.psum(t["a"], "x")}, mesh=mesh,
                        in_specs=({"a": j.P("x"), "b": None, "c": [None, j.P("x")], "d": ()},),
                        out_specs={"a": j.P(), "b": None, "c": [None, j.P("x")], "d": ()})  # fmt: skip
    return put, f(tree), j.lib.jit(lambda t: j.lib.tree.map(lambda v: v + 1, t))(put)


@program
def dtypes(j: Any) -> Any:
    mesh = mesh_of(j, 4)
    out = {}
    for name in ("bfloat16", "float16", "int8", "uint8", "int32", "uint32", "complex64", "bool", "float8_e4m3fn"):
        x = onp.arange(-8, 8).reshape(8, 2).astype(onp.float32)
        x = (x > 0) if name == "bool" else j.np.asarray(x if name != "uint8" and name != "uint32" else abs(x)).astype(
            name)  # fmt: skip
        y = j.lib.device_put(x, named(j, mesh, "x"))
        body = lambda v: (j.lax.all_gather(v, "x", tiled=True), j.lax.ppermute(v, "x", [(0, 1), (1, 2), (2, 3)]))
        g = j.lib.shard_map(body, mesh=mesh, in_specs=j.P("x"), out_specs=j.P("x"))
        found = [v.astype("complex64") for v in (*g(y), j.lib.jit(lambda v: v[::-1])(y))]
        if name not in ("bool", "float8_e4m3fn"):
            h = j.lib.shard_map(lambda v: j.lax.psum(v, "x"), mesh=mesh, in_specs=j.P("x"), out_specs=j.P())
            found += [h(y).astype("complex64"), j.lib.jit(lambda v: v.sum(0))(y).astype("complex64")]
        if name not in ("bool", "complex64", "float8_e4m3fn"):
            h = j.lib.shard_map(lambda v: j.lax.pmax(v, "x"), mesh=mesh, in_specs=j.P("x"), out_specs=j.P())
            found += [h(y).astype("complex64"), j.lib.jit(lambda v: v.max(0))(y).astype("complex64")]
        out[name] = found
    return out


# ---------------------------------------------------------------------------------------------------------- random


@program
def random_numbers_inside_of_jit(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    key = j.lib.random.key(0)
    f = j.lib.jit(lambda k: j.lib.random.normal(k, (8, 6)), out_shardings=named(j, mesh, "x", "y"))
    g = j.lib.jit(lambda k: j.lib.random.permutation(k, 16), out_shardings=named(j, mesh, "x"))
    return f(key), g(key), j.lib.jit(lambda k: j.lib.random.categorical(k, floats(4, 5)))(key)


@program
def keys_that_are_split(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    keys = j.lib.random.split(j.lib.random.key(7), 8)
    put = j.lib.device_put(keys, named(j, mesh, "x"))
    f = j.lib.jit(j.lib.vmap(lambda k: j.lib.random.uniform(k, (3,))))
    body = lambda k: j.lib.random.uniform(k[0], (1, 3)) + j.lib.random.bits(j.lib.random.split(k[0])[1], (1, 1)) % 2
    g = j.lib.shard_map(body, mesh=mesh, in_specs=j.P("x"), out_specs=j.P("x"))
    return f(put), g(put), j.lib.random.key_data(put), j.lib.random.key_data(put[3])


@program
def dropout_for_each_device(j: Any) -> Any:
    mesh = mesh_of(j, 8)

    def body(key: Any, x: Any) -> Any:
        key = j.lib.random.fold_in(key, j.lax.axis_index("x"))
        return j.np.where(j.lib.random.bernoulli(key, 0.5, x.shape), x * 2, 0)

    f = j.lib.shard_map(body, mesh=mesh, in_specs=(j.P(), j.P("x")), out_specs=j.P("x"))
    return j.lib.jit(f)(j.lib.random.PRNGKey(1), floats(8, 4)), f(j.lib.random.key(2), floats(8, 4))


# ------------------------------------------------------------------------------------------------------------ pmap


@program
def pmap_basics(j: Any) -> Any:
    x = onp.arange(8.0, dtype=onp.float32)
    f = j.lib.pmap(lambda x: x / j.lax.psum(x, "i"), axis_name="i")
    g = j.lib.pmap(lambda x, y: (x * y, j.lax.axis_index("i")), in_axes=(0, None), axis_name="i")
    h = j.lib.pmap(lambda d: d["a"].sum() + d["b"][0], in_axes=({"a": 1, "b": (0,)},), out_axes=0)
    return f(x), g(x, 3.0), h({"a": floats(3, 8), "b": (x,)}), j.lib.pmap(lambda x: x @ x.T)(floats(8, 2, 3))


@program
def pmap_training(j: Any) -> Any:
    """Replicated parameters, a batch for each device, and the mean of gradients."""
    count = 8
    params = {"w": floats(5, 3) / 2, "b": onp.zeros(3, onp.float32)}
    replicated = j.lib.tree.map(lambda p: onp.stack([p] * count), params)

    @functools.partial(j.lib.pmap, axis_name="batch", donate_argnums=(0,))
    def step(params: Any, x: Any, y: Any) -> Any:
        loss = lambda p: ((x @ p["w"] + p["b"] - y) ** 2).mean()
        value, grads = j.lib.value_and_grad(loss)(params)
        grads = j.lax.pmean(grads, axis_name="batch")
        return j.lib.tree.map(lambda p, g: p - 0.1 * g, params, grads), j.lax.pmean(value, "batch")

    losses = []
    for i in range(4):
        replicated, loss = step(replicated, floats(count, 4, 5, seed=i), floats(count, 4, 3, seed=i + 9))
        losses.append(loss)
    return j.lib.tree.map(lambda p: p[0], replicated), losses


@program
def pmap_batch_norm(j: Any) -> Any:
    def normalized(x: Any) -> Any:
        mean = j.lax.pmean(x.mean(0), "i")
        var = j.lax.pmean((x**2).mean(0), "i") - mean**2
        return (x - mean) / j.np.sqrt(var + 1e-5)

    x = floats(8, 4, 3)
    loss = j.lib.pmap(j.lib.grad(lambda x, y: (normalized(x) * y).sum()), axis_name="i")
    return j.lib.pmap(normalized, axis_name="i")(x), loss(x, floats(8, 4, 3, seed=1))


@program
def pmap_groups(j: Any) -> Any:
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
    x = floats(8, 4)
    f = lambda op, **k: j.lib.pmap(lambda x: op(x, "i", axis_index_groups=groups, **k), axis_name="i")(x)
    return (
        f(j.lax.psum), f(j.lax.pmean), f(j.lax.pmax), f(j.lax.all_gather),
        f(j.lax.psum_scatter), f(j.lax.all_to_all, split_axis=0, concat_axis=0),
    )  # fmt: skip


@program
def pmap_static_arguments(j: Any) -> Any:
    f = j.lib.pmap(lambda x, n, y: x**n + y, static_broadcasted_argnums=1, in_axes=(0, None, None))
    g = j.lib.pmap(lambda name, x: j.np.sin(x) if name == "sin" else x, static_broadcasted_argnums=(0,))
    return f(floats(8), 3, 1.0), g("sin", floats(8)), g("id", floats(8))


@program
def pmap_nested_and_under_others(j: Any) -> Any:
    x = floats(4, 2, 3)
    f = j.lib.pmap(lambda r: j.lib.vmap(lambda x: j.lax.psum(x, ("i", "k")), axis_name="k")(r), axis_name="i")
    g = j.lib.pmap(lambda x: j.lax.psum(j.np.sin(x).sum(), "i"), axis_name="i")
    summed = lambda x: g(x).sum()
    return f(x), j.lib.grad(summed)(x), j.lib.vmap(g, in_axes=1)(x), j.lib.jit(g)(x), j.lib.jvp(g, (x,), (x,))


@program
def pmap_on_some_devices(j: Any) -> Any:
    f = j.lib.pmap(
        lambda x: j.lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), axis_name="i", devices=j.lib.devices()[3:6]
    )
    y = f(floats(3, 2))
    return y, f(y), sorted(d.id for d in y.devices())


@program
def pmap_out_axes(j: Any) -> Any:
    f = j.lib.pmap(lambda x: {"a": x, "b": x.sum()}, in_axes=1, out_axes={"a": 1, "b": 0})
    g = j.lib.pmap(lambda x: j.lax.psum(x, "i"), axis_name="i", out_axes=None)
    return f(floats(3, 8)), g(floats(8, 2))


@program
def pmap_wrong_sizes(j: Any) -> Any:
    found = []
    for args in ((floats(9),), (floats(4), floats(3)), (onp.float32(1),)):
        try:
            j.lib.pmap(lambda *a: a[0])(*args)
            found.append("no error")
        except (ValueError, TypeError, IndexError):
            found.append("an error")
    return found


# -------------------------------------------------------------------------------------------------------- libraries


@program
def optimizer_states_are_split(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    params = {"w": floats(16, 4) / 4, "b": onp.zeros(8, onp.float32)}
    shardings = {"w": named(j, mesh, "x"), "b": named(j, mesh, "x")}
    tx = j.optim.chain(j.optim.clip_by_global_norm(1.0), j.optim.adamw(1e-2))
    params = j.lib.device_put(params, shardings)
    state = j.lib.jit(tx.init)(params)

    @j.lib.jit
    def step(params: Any, state: Any, x: Any) -> Any:
        loss = lambda p: ((x @ p["w"]) ** 2).sum() + (p["b"] - 1).sum() ** 2
        value, grads = j.lib.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        return j.optim.apply_updates(params, updates), state, value

    values = []
    for i in range(3):
        params, state, value = step(params, state, floats(8, 16, seed=i))
        values.append(value)
    return params, values, [leaf.shape for leaf in j.lib.tree.leaves(state)]


@program
def linen_model(j: Any) -> Any:
    mesh, linen = mesh_of(j, 4, 2), j.linen

    class Model(linen.Module):  # type: ignore[name-defined, misc]
        @linen.compact
        def __call__(self, x: Any, train: bool) -> Any:
            x = linen.Dense(16)(x)
            x = linen.BatchNorm(use_running_average=not train)(x)
            x = linen.relu(x)
            return linen.Dense(4)(linen.LayerNorm()(x))

    model = Model()
    x = j.lib.device_put(floats(16, 8), named(j, mesh, "x"))
    variables = j.lib.jit(lambda k, x: model.init(k, x, train=False))(j.lib.random.key(0), x)

    @j.lib.jit
    def step(variables: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            out, new = model.apply({**variables, "params": params}, x, train=True, mutable=["batch_stats"])
            return (out**2).mean(), new

        (value, new), grads = j.lib.value_and_grad(loss, has_aux=True)(variables["params"])
        return {"params": j.lib.tree.map(lambda p, g: p - 0.1 * g, variables["params"], grads), **new}, value

    for _ in range(2):
        variables, value = step(variables, x)
    return value, variables["batch_stats"], model.apply(variables, x, train=False)


@program
def linen_partitioning(j: Any) -> Any:
    mesh, linen = mesh_of(j, 4, 2), j.linen

    class Model(linen.Module):  # type: ignore[name-defined, misc]
        @linen.compact
        def __call__(self, x: Any) -> Any:
            init = linen.with_partitioning(linen.initializers.lecun_normal(), (None, "y"))
            x = linen.Dense(16, kernel_init=init, use_bias=False)(x)
            x = linen.Dense(8, kernel_init=linen.with_partitioning(linen.initializers.lecun_normal(), ("y", None)))(x)
            return x

    model, x = Model(), floats(8, 8)
    abstract = j.lib.eval_shape(model.init, j.lib.random.key(0), x)
    specs = linen.get_partition_spec(abstract)
    shardings = j.lib.tree.map(lambda s: j.lib.sharding.NamedSharding(mesh, s), specs,
                               is_leaf=lambda s: isinstance(s, j.P))  # fmt: skip
    variables = j.lib.jit(model.init, out_shardings=shardings)(j.lib.random.key(0), x)
    kernel = linen.unbox(variables)["params"]["Dense_0"]["kernel"]
    return kernel, kernel.sharding.spec == j.P(None, "y"), j.lib.jit(model.apply)(variables, x)


@program
def haiku_model(j: Any) -> Any:
    mesh, haiku = mesh_of(j, 8), j.haiku

    def forward(x: Any) -> Any:
        x = haiku.Linear(16)(x)
        return haiku.Linear(3)(haiku.LayerNorm(-1, True, True)(j.nn.gelu(x)))

    model = haiku.without_apply_rng(haiku.transform(forward))
    x = floats(16, 5)
    params = j.lib.device_put(model.init(j.lib.random.PRNGKey(0), x), named(j, mesh))
    split = j.lib.device_put(x, named(j, mesh, "x"))
    return j.lib.jit(model.apply)(params, split), j.lib.jit(j.lib.grad(lambda p, x: (model.apply(p, x) ** 2).sum()))(
        params, split)  # fmt: skip


@program
def haiku_across_devices(j: Any) -> Any:
    haiku = j.haiku

    def forward(x: Any) -> Any:
        norm = haiku.BatchNorm(True, True, 0.9, cross_replica_axis="i")
        return norm(haiku.Linear(4, w_init=haiku.initializers.Constant(0.3))(x) * x[..., :1], is_training=True)

    model = haiku.transform_with_state(forward)
    x = floats(8, 3, 4)
    key = onp.stack([onp.asarray(j.lib.random.PRNGKey(0))] * 8)
    params, state = j.lib.pmap(model.init, axis_name="i")(key, x)
    out, state = j.lib.pmap(lambda p, s, x: model.apply(p, s, None, x), axis_name="i")(params, state, x)
    return out, state


@program
def attention_by_data_and_heads(j: Any) -> Any:
    mesh = mesh_of(j, 2, 4)

    def block(p: Any, x: Any) -> Any:
        split = lambda h: h.reshape(*h.shape[:2], 4, -1)
        q, k, v = split(x @ p["q"]), split(x @ p["k"]), split(x @ p["v"])
        weights = j.nn.softmax(j.np.einsum("bqhd,bkhd->bhqk", q, k) / 2.0)
        mixed = j.np.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape)
        x = x + mixed @ p["o"]
        return x + j.nn.gelu(x @ p["up"]) @ p["down"]

    shapes = {"q": (16, 16), "k": (16, 16), "v": (16, 16), "o": (16, 16), "up": (16, 32), "down": (32, 16)}
    params = {n: floats(*s, seed=i) / 4 for i, (n, s) in enumerate(shapes.items())}
    rows, columns = named(j, mesh, "y"), named(j, mesh, None, "y")
    put = {n: j.lib.device_put(p, rows if n in ("o", "down") else columns) for n, p in params.items()}
    x = j.lib.device_put(floats(4, 6, 16), named(j, mesh, "x"))
    return j.lib.jit(j.lib.value_and_grad(lambda p, x: (block(p, x) ** 2).mean()))(put, x)


@program
def embedding_and_loss(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    table = j.lib.device_put(floats(32, 8), named(j, mesh, "y"))
    ids = j.lib.device_put(onp.random.RandomState(0).randint(0, 32, (8, 5)).astype(onp.int32), named(j, mesh, "x"))

    def loss(table: Any, ids: Any) -> Any:
        h = j.np.tanh(table[ids])
        logits = h @ table.T
        picked = j.np.take_along_axis(j.nn.log_softmax(logits), j.np.roll(ids, -1, 1)[..., None], -1)
        return -picked.mean()

    return j.lib.jit(j.lib.value_and_grad(loss))(table, ids)


@program
def convolutions(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    x = j.lib.device_put(floats(8, 8, 8, 3), named(j, mesh, "x"))
    w = floats(3, 3, 3, 4)
    f = lambda w, x: j.np.sin(
        j.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))).sum()  # fmt: skip
    tall = j.lib.device_put(floats(2, 16, 8, 3), named(j, mesh, None, "x"))
    pool = lambda x: j.lax.reduce_window(x, -j.np.inf, j.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return j.lib.jit(j.lib.grad(f, (0, 1)))(w, x), j.lib.jit(f)(w, tall), j.lib.jit(pool)(x), j.lib.jit(pool)(tall)


@program
def data_movement(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    x = j.lib.device_put(floats(8, 6), named(j, mesh, "x", "y"))
    f = lambda x: (
        x[2:5, 1:], x[::-1], x.reshape(4, 12), x.reshape(-1), x.T, j.np.concatenate([x, x[:3]]), j.np.roll(x, 3, 0),
        j.np.pad(x, 1), j.np.sort(x, 0), j.np.argsort(x, 1), j.np.take(x, onp.array([7, 0, 3]), 0), x.at[2].set(1.0),
        j.np.tile(x, (2, 1)), j.np.repeat(x, 2, 0), j.np.stack([x, x], 1), j.np.split(x, 2, 0), j.np.diff(x, axis=0),
        j.np.where(x > 0, x, 0), j.np.cumsum(x, 0), j.np.cumsum(x, 1), j.np.median(x, 0), j.np.unique(x[0] > 0, size=2),
    )  # fmt: skip
    return j.lib.jit(f)(x), f(x)


@program
def linear_algebra(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    a = floats(8, 4, 4)
    x = j.lib.device_put(a @ a.transpose(0, 2, 1) + 4 * onp.eye(4, dtype=onp.float32), named(j, mesh, "x"))
    f = lambda x: (
        j.np.linalg.cholesky(x), j.np.linalg.inv(x), j.np.linalg.solve(x, x[:, :, :1]), j.np.linalg.det(x),
        j.np.linalg.eigvalsh(x), j.np.linalg.norm(x, axis=(1, 2)), j.np.trace(x, axis1=1, axis2=2),
        j.np.fft.fft(x).real,
    )  # fmt: skip
    wide = j.lib.device_put(a.reshape(8, 16), named(j, mesh, "x"))
    return j.lib.jit(f)(x), j.lib.jit(lambda w: j.np.linalg.qr(w.T)[1].shape)(wide), j.lib.jit(lambda w: w @ w.T)(wide)


@program
def make_arrays(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    value, sharding = floats(8, 4), named(j, mesh, "x", "y")
    a = j.lib.make_array_from_callback((8, 4), sharding, lambda index: value[index])
    parts = [j.lib.device_put(value[i], d) for d, i in sharding.addressable_devices_indices_map((8, 4)).items()]
    b = j.lib.make_array_from_single_device_arrays((8, 4), sharding, parts)
    c = j.lib.make_array_from_process_local_data(sharding, value)
    shards = [(s.device.id, s.index, s.replica_id, s.data.shape) for s in a.addressable_shards]
    return a, b + 1, c * 2, onp.asarray(a.addressable_data(3)), str(shards), a.is_fully_addressable


@program
def put_in_many_ways(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    x, found = floats(8, 8), []
    for first in ((), ("x",), (None, "y"), ("x", "y"), (("x", "y"),), (("y", "x"),), ("y", "x")):
        y = j.lib.device_put(x, named(j, mesh, *first))
        for second in ((), ("y",), (None, ("x", "y")), ("x",)):
            z = j.lib.device_put(y, named(j, mesh, *second))
            found.append([z, [s.data.shape for s in z.addressable_shards], z.sharding.spec == j.P(*second)])
        found.append(onp.asarray(j.lib.device_put(y, j.lib.devices()[3])))
        found.append(onp.asarray(j.lib.device_get(y)))
    return found


@program
def errors(j: Any) -> Any:
    """Things that are wrong in both."""
    mesh = mesh_of(j, 4, 2)
    x = floats(6, 8)
    other = j.lib.device_put(floats(8), j.lib.devices()[2])
    split = j.lib.device_put(floats(8), named(j, mesh, "x"))
    tries = [
        lambda: j.lib.shard_map(lambda x: x, mesh=mesh, in_specs=j.P("x"), out_specs=j.P("x"))(x),
        lambda: j.lib.shard_map(lambda x: x, mesh=mesh, in_specs=j.P("x"), out_specs=j.P())(floats(8)),
        lambda: j.lib.device_put(x, named(j, mesh, "q")),
        lambda: j.lib.device_put(x, named(j, mesh, "x", "y", None)),
        lambda: j.lib.jit(lambda a, b: a + b)(split, other),
        lambda: j.lib.jit(lambda a: a, in_shardings=named(j, mesh, "x"))(j.lib.device_put(split, named(j, mesh, "y"))),
        lambda: j.lib.shard_map(lambda x: j.lax.psum(x, "z"), mesh=mesh, in_specs=j.P("x"), out_specs=j.P())(floats(8)),
        lambda: j.lib.shard_map(lambda x: j.lax.ppermute(x, "x", [(0, 1), (2, 1)]), mesh=mesh, in_specs=j.P("x"),
                                out_specs=j.P("x"))(floats(8)),
        lambda: j.lib.shard_map(lambda x: j.lax.all_to_all(x, "x", 0, 0), mesh=mesh, in_specs=j.P("x"),
                                out_specs=j.P("x"))(floats(12)),
        lambda: j.lib.make_mesh((16,), ("x",)),
        lambda: j.lib.sharding.Mesh(onp.array(j.lib.devices()).reshape(4, 2), ("x",)),
        lambda: j.lib.jit(lambda x: x, out_shardings=[named(j, mesh)] * 2)(x),
        lambda: j.lib.pmap(lambda x: j.lax.psum(x, "k"), axis_name="i")(floats(8)),
    ]  # fmt: skip
    found = []
    for one in tries:
        try:
            one()
            found.append("no error")
        except Exception:
            found.append("an error")
    return found


@program
def scan_over_layers_by_columns_and_rows(j: Any) -> Any:
    mesh = mesh_of(j, 2, 4)
    layers = {"up": floats(3, 8, 16) / 3, "down": floats(3, 16, 8) / 4, "scale": onp.ones((3, 8), onp.float32)}
    specs = {"up": (None, None, "y"), "down": (None, "y"), "scale": ()}
    put = {n: j.lib.device_put(v, named(j, mesh, *specs[n])) for n, v in layers.items()}

    def loss(layers: Any, x: Any) -> Any:
        def layer(h: Any, p: Any) -> Any:
            g = h * p["scale"] / j.np.sqrt((h**2).mean(-1, keepdims=True) + 1e-6)
            return h + j.nn.silu(g @ p["up"]) @ p["down"], (h**2).sum()

        h, norms = j.lax.scan(layer, x, layers)
        return (h**2).mean() + 0.01 * norms.sum()

    x = j.lib.device_put(floats(8, 8), named(j, mesh, "x"))
    return j.lib.jit(j.lib.value_and_grad(loss))(put, x)


@program
def gradient_accumulation(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    w = j.lib.device_put(floats(8, 8) / 3, named(j, mesh))
    batches = j.lib.device_put(floats(4, 16, 8), named(j, mesh, None, "x"))

    def total(w: Any, batches: Any) -> Any:
        def one(carry: Any, x: Any) -> Any:
            value, grad = j.lib.value_and_grad(lambda w: (j.np.tanh(x @ w) ** 2).mean())(w)
            return (carry[0] + value, carry[1] + grad), None

        return j.lax.scan(one, (0.0, j.np.zeros_like(w)), batches)[0]

    return j.lib.jit(total)(w, batches)


@program
def eager_operations(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    x = j.lib.device_put(floats(8, 8), named(j, mesh, "x", "y"))
    y = x
    y = y.at[0, 0].set(5.0)
    y = j.np.where(y > 0, y, -y) @ x
    y = y / y.sum(-1, keepdims=True)
    return (
        y,
        y.mean(),
        float(y[0, 0]),
        bool((y == y).all()),
        [float(r[0]) for r in x][:3],
        len(x),
        x[1],
        x[:, 3],
        x[x > 1].shape,
    )


@program
def set_mesh_and_reshard(j: Any) -> Any:
    mesh = j.lib.make_mesh((4, 2), ("x", "y"), axis_types=(j.lib.sharding.AxisType.Explicit,) * 2)
    with j.lib.set_mesh(mesh):
        x = j.lib.device_put(floats(8, 8), j.P("x", "y"))
        y = j.lib.sharding.reshard(x, j.P("x", None))
        f = j.lib.jit(lambda x, y: j.np.sin(x).sum(1) + j.lib.sharding.reshard(y, j.P("x", None))[:, 0])
        return f(x, y), str(j.lib.typeof(y).sharding.spec), str(j.lib.typeof(f(x, y)).sharding.spec)


@program
def old_names(j: Any) -> Any:
    """`pjit` and the experimental modules."""
    mesh = mesh_of(j, 8)
    with mesh:
        f = j.pjit(lambda x: x * 2, in_shardings=j.P("x"), out_shardings=j.P("x"))
        y = f(floats(8, 2))
    g = j.old_shard_map(lambda x: j.lax.psum(x, "x"), mesh, in_specs=(j.P("x"),), out_specs=j.P())
    return y, g(floats(8))
