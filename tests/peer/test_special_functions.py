"""weft.scipy.special and weft.scipy.stats against JAX: names, parameters, and values where JAX has digits."""

from __future__ import annotations

import inspect
import itertools
from types import ModuleType
from typing import Any

import jax
import jax.scipy.special
import jax.scipy.stats
import numpy as np
import pytest

import weft
from weft.scipy import special, stats

PAIRS: list[tuple[str, Any, Any]] = [("special", special, jax.scipy.special), ("stats", stats, jax.scipy.stats)]
PAIRS += [
    (f"stats.{name}", getattr(stats, name), module)
    for name, module in vars(jax.scipy.stats).items()
    if isinstance(module, ModuleType) and name[0] != "_"
]


@pytest.mark.parametrize(("name", "ours", "theirs"), PAIRS, ids=[name for name, _, _ in PAIRS])
def test_names_and_parameters(name: str, ours: Any, theirs: Any) -> None:
    for attribute, value in vars(theirs).items():
        if attribute[0] == "_" or isinstance(value, ModuleType) or not callable(value):
            continue
        own, other = (inspect.signature(f).parameters for f in (getattr(ours, attribute), value))
        assert list(own) == list(other), attribute
        defaults = [(p.default, q.default) for p, q in zip(own.values(), other.values(), strict=True)]
        assert all(p == q for p, q in defaults), attribute


DISTRIBUTIONS: dict[str, tuple[Any, ...]] = {
    "beta": (2.0, 3.0),
    "cauchy": (),
    "chi2": (3.0,),
    "expon": (),
    "gamma": (2.5,),
    "gennorm": (1.5,),
    "gumbel_l": (),
    "gumbel_r": (),
    "laplace": (),
    "logistic": (),
    "norm": (),
    "pareto": (1.5,),
    "t": (4.0,),
    "truncnorm": (-1.0, 2.0),
    "uniform": (),
    "vonmises": (2.0,),
    "wrapcauchy": (0.4,),
}


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_distributions(name: str) -> None:
    ours, theirs = getattr(stats, name), getattr(jax.scipy.stats, name)
    x = np.linspace(0.1, 0.9, 9, dtype=np.float32)
    for function in ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf"):
        if hasattr(theirs, function):
            got, expected = (getattr(m, function)(x, *DISTRIBUTIONS[name]) for m in (ours, theirs))
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-6, err_msg=function)


@pytest.mark.parametrize(
    "name", ["dawsn", "digamma", "entr", "erfcx", "expi", "exp1", "gamma", "i0", "logit", "ndtri", "spence", "sici"]
)
def test_functions(name: str) -> None:
    x = np.linspace(0.1, 0.9, 9, dtype=np.float32)
    got, expected = (getattr(m, name)(x) for m in (special, jax.scipy.special))
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


ARGUMENTS: list[Any] = [np.bool_(1), np.int8(1), np.float16(0.5), np.float32(0.5), 2, 2.5, 0.5j]
# Where JAX refuses or widens without need, or forgets that a number was weak.
WIDER = ("owens_t", "comb", "kl_div", "rel_entr", "loggamma")


def types_of(library: Any, function: Any, args: tuple[Any, ...]) -> Any:
    """Return the dtypes and weak types of what a function returns, or None where it refuses."""
    try:
        results = jax.tree.leaves(library.eval_shape(lambda: function(*args)))
    except (TypeError, ValueError, NotImplementedError):
        return None
    return [(str(x.dtype), x.weak_type) for x in results]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # JAX overflows in float16
@pytest.mark.parametrize("count", [1, 2])
def test_dtypes_of_numbers(count: int) -> None:
    """Python's numbers beside arrays: the same dtypes and weak types as JAX's."""
    different = []
    for name, theirs in vars(jax.scipy.special).items():
        if name[0] == "_" or isinstance(theirs, ModuleType) or not callable(theirs) or name in WIDER:
            continue
        for args in itertools.product(ARGUMENTS, repeat=count):
            own, other = (types_of(library, f, args) for library, f in ((weft, getattr(special, name)), (jax, theirs)))
            if other is not None and own is not None and own != other:
                different.append((name, args, own, other))
    assert not different
