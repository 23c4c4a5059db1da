"""Names, keys, state and lifted transformations as in Haiku: the same paths, the same keys, the same values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peer.haiku_cases import HAIKU, LIBRARIES, as_numpy, assert_same, transformed, values

ROWS = [
    # keys
    "[hk.next_rng_key() for _ in range(3)]",
    "(hk.next_rng_keys(3), hk.next_rng_key())",
    "(hk.reserve_rng_keys(2), hk.next_rng_key(), hk.next_rng_key(), hk.next_rng_key())[1:]",
    "(hk.maybe_next_rng_key(), hk.maybe_get_rng_sequence_state()[0])",
    "hk.PRNGSequence(5).take(3)",
    "(lambda s: (s.reserve(3), next(s), s.internal_state, next(s)))(hk.PRNGSequence(7))[1:]",
    # sequences of keys go through control flow
    "(hk.scan(lambda c, _: (c + random.uniform(hk.next_rng_key()), None), 0.0, None, length=3)[0], hk.next_rng_key())",
    "(hk.fori_loop(0, 3, lambda i, c: c + random.uniform(hk.next_rng_key()), 0.0), hk.next_rng_key())",
    "(hk.cond(True, lambda: random.uniform(hk.next_rng_key()), lambda: 0.0), hk.next_rng_key())",
    "(hk.vmap(lambda _: hk.next_rng_key(), split_rng=not hk.running_init())(np.arange(3)), hk.next_rng_key())",
    "(hk.vmap(lambda _: hk.next_rng_key(), split_rng=False)(np.arange(2)), hk.next_rng_key())",
    "(hk.remat(lambda: hk.next_rng_key())(), hk.next_rng_key())",
    "(hk.grad(lambda a: a * random.uniform(hk.next_rng_key()))(1.0), hk.next_rng_key())",
    # parameters and state of transformed functions
    "hk.remat(hk.Linear(3))(hk.remat(hk.Linear(6))(x))",
    "hk.remat(lambda a: hk.Linear(3)(a))(hk.remat(lambda a: hk.Linear(6)(a))(x))",
    "hk.Linear(3)(hk.remat(lambda a: hk.Linear(6)(a))(x))",
    "hk.grad(lambda a: np.sum(hk.Linear(3)(a) ** 2))(x)",
    "hk.value_and_grad(lambda a: (np.sum(hk.Linear(3)(a) ** 2), a + 1), has_aux=True)(x)",
    "(lambda m: hk.scan(lambda c, _: (m(c), np.sum(c)), x, None, length=3))(hk.Linear(6))",
    "(lambda m: hk.scan(lambda c, a: (c + m(a), a), np.zeros((3, 2)), seq, reverse=True))(hk.Linear(2))",
    "(lambda m: hk.map(m, seq))(hk.Linear(2))",
    "hk.vmap(hk.Linear(2), split_rng=False)(seq)",
    "hk.vmap(lambda a: hk.Linear(2)(a), in_axes=1, out_axes=1, split_rng=False)(seq)",
    "hk.vmap(lambda a, b: hk.Linear(2)(a) + b, in_axes=(0, None), split_rng=False)(seq, 2.0)",
    "hk.vmap(lambda d: hk.Linear(2)(d['a']) + d['b'], in_axes=({'a': 0, 'b': None},), split_rng=False)"
    "({'a': seq, 'b': 2.0})",
    "hk.vmap(lambda p, q: hk.Linear(2)(p[0]) + p[1] + q, in_axes=((0, None), None), axis_size=5, split_rng=False)"
    "((seq, 1.0), 2.0)",
    "hk.vmap(lambda a: (hk.Linear(2)(a), 1.0), out_axes=(1, None), axis_name='i', split_rng=False)(seq)",
    "hk.remat(lambda a, flag: hk.Linear(2 if flag else 3)(a), static_argnums=1)(x, True)",
    "hk.cond(x[0, 0] > 0, lambda a: a + 1, lambda a: a - 1, operand=x)",
    "hk.cond(x[0, 0] > 0, x, lambda a: a + 1, 2 * x, lambda a: a - 1)",
    "hk.switch(1, [lambda a, b: a, lambda a, b: a + b], x, v)",
    "(lambda m: m(hk.scan(lambda c, _: (m(c), None), x, None, length=2)[0]))(hk.BatchNorm(True, True, 0.9)"
    " and (lambda n: lambda a: n(a, True))(hk.BatchNorm(True, True, 0.5)))",
    "hk.cond(True, hk.Linear(3), hk.Linear(3), x) if not hk.running_init() else (hk.Linear(3)(x), hk.Linear(3)(x))[1]",
    "hk.eval_shape(lambda a: hk.Linear(2)(a), x).shape[0] * hk.Linear(2)(x)",
    "(hk.set_state('n', hk.get_state('n', [], init=np.zeros) + 1), hk.get_state('n'))[1]",
    "(hk.get_parameter('a', [2], init=np.ones), hk.get_parameter('a', [2], init=np.zeros))",
    # names
    "[hk.Linear(1, name=n).module_name == e or 1 / 0 for n, e in "
    "[('m', 'm'), ('m_5', 'm_5'), ('m', 'm_6'), (None, 'linear'), (None, 'linear_1'), ('_x', '_x')]] and 0",
    "hk.nets.MLP([2, 2])(hk.nets.MLP([2, 6])(x))",
    "hk.Sequential([hk.nets.MLP([4]), hk.Linear(3, name='head')])(x)",
    "hk.Linear(6, name=hk.force_name('zz/yy'))(hk.Linear(6, name=hk.force_name('zz/yy'))(x))",
    # lifting
    "hk.lift(hk.transform(lambda a: hk.nets.MLP([2])(a)).init, name='inner')(hk.next_rng_key(), x)",
    "hk.transparent_lift(hk.transform(lambda a: hk.Linear(2)(a)).init)(hk.next_rng_key(), x)",
    "hk.lift(hk.transform(lambda: hk.get_parameter('a', [], init=np.ones)).init, name='inner')(None)",
    "(lambda f, u: (lambda p, s: (u.update({k: {'n': v['n'] + 1} for k, v in s.items()}), p)[1])(*f(None)))"
    "(*hk.lift_with_state(hk.transform_with_state(lambda: hk.get_state('n', [], init=np.zeros)).init, name='q'))",
    "hk.layer_stack(3)(lambda a: hk.Linear(6)(a))(x)",
    "hk.layer_stack(3, unroll=3, name='stack')(lambda a: np.tanh(hk.nets.MLP([4, 6])(a)))(x)",
    "hk.layer_stack(2, with_per_layer_inputs=True)(lambda a, b: (hk.Linear(6)(a) + b, b * 2))(x, np.arange(2.0))",
    "hk.layer_stack(3)(lambda a: a + random.uniform(hk.next_rng_key()))(0.0)",
    "hk.layer_stack(2)(lambda a, b: (hk.Linear(6)(a), b + 1))(x, 1.0)",
    "hk.Linear(2)(hk.layer_stack(2)(hk.Linear(6))(hk.layer_stack(2)(lambda a: hk.Linear(6)(a))(x)))",
    # initializers
    "[hk.get_parameter(d + e, [3, 4], init=hk.initializers.VarianceScaling(2.0, d, e))"
    " for d in ('fan_in', 'fan_out', 'fan_avg') for e in ('normal', 'truncated_normal', 'uniform')]",
    "[hk.get_parameter(str(i), s, init=hk.initializers.VarianceScaling()) for i, s in "
    "enumerate([[], [3], [2, 3, 4], [3, 3, 2, 4]])]",
    "hk.get_parameter('a', [2, 3, 4], init=hk.initializers.VarianceScaling(fan_in_axes=(0, 2)))",
    "hk.get_parameter('a', [2, 3, 4], init=hk.initializers.UniformScaling(2.0))",
    "hk.get_parameter('a', [3, 5], init=hk.initializers.Identity(2.0))",
    "hk.get_parameter('a', [3, 3, 5, 5], init=hk.initializers.Identity())",
    "hk.get_parameter('a', [2, 3], init=hk.initializers.TruncatedNormal(0.5, 1.0, -1.0, 3.0))",
    "hk.get_parameter('a', [3], np.bfloat16, init=hk.initializers.RandomNormal(0.5, 1.0))",
    "hk.get_parameter('a', [2, 3], init=hk.initializers.Constant(onp.arange(3.0)))",
]


def result(library: str, text: str) -> dict[str, Any]:
    lib = LIBRARIES[library]
    init, apply = transformed(text, library)

    def everything(key: Any) -> dict[str, Any]:
        params, state = init(key, *values(text))
        out, after = apply(params, state, key, *values(text))
        return {"params": params, "state": state, "result": out, "after": after}

    return as_numpy(lib.jit(everything)(lib.random.PRNGKey(0)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("text", ROWS)
def test_machinery_is_as_in_haiku(text: str) -> None:
    assert_same(result("weft", text), result("jax", text))


@pytest.mark.parametrize("library", HAIKU)
def test_paths_follow_methods(library: str) -> None:
    hk, lib = HAIKU[library], LIBRARIES[library]
    seen: list[str] = []

    class Model(hk.Module):
        def __init__(self, name: str | None = None):
            super().__init__(name)
            self.first, self.second = hk.Linear(2), hk.Linear(2, name="linear")

        def __call__(self) -> None:
            out = hk.Linear(3), hk.Linear(3, name="linear_1"), hk.Linear(3)
            seen.extend(one.module_name for one in (self.first, self.second, *out))
            self.encode()
            for _ in range(2):
                with hk.name_scope("scope"):
                    seen.extend([hk.Linear(2).module_name, hk.current_name()])

        def encode(self) -> None:
            seen.append(hk.Linear(3).module_name)
            self.inner()

        @hk.transparent
        def inner(self) -> None:
            seen.append(hk.Linear(3).module_name)

        @hk.name_like("__call__")
        def like(self) -> None:
            seen.append(hk.Linear(3).module_name)

        @property
        def value(self) -> str:
            return hk.Linear(3).module_name

    def run() -> None:
        model = Model()
        model()
        model()
        model.like()
        seen.extend([model.value, Model().module_name, repr(Model("other"))])

    hk.transform(run).init(lib.random.PRNGKey(0))
    once = [
        "model/~/linear", "model/~/linear_1", "model/linear", "model/linear_1", "model/linear_2",
        "model/~encode/linear", "model/~encode/linear_1",
        "model/scope/linear", "model/scope", "model/scope_1/linear", "model/scope_1",
    ]  # fmt: skip
    assert seen == [*once, *once, "model/linear", "model/~value/linear", "model_1", "Model(name='other')"]
