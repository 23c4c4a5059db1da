"""Helpers for tests of functions that use modules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import weft
from weft.errors import suggest as _suggest
from weft.haiku.transform import transform_with_state


def transform_and_run(
    f: Callable[..., Any] | None = None,
    seed: int | None = 42,
    run_apply: bool = True,
    jax_transform: Callable[..., Any] | None = None,
    *,
    map_rng: Callable[[Any], Any] | None = None,
) -> Any:
    """Wrap a function that uses modules: a call runs its `init` and then its `apply`.

    `jax_transform`, such as `weft.jit`, is applied to both functions, and `map_rng` to the key of each.
    """
    if f is None:
        return functools.partial(
            transform_and_run, seed=seed, run_apply=run_apply, jax_transform=jax_transform, map_rng=map_rng
        )

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        first = second = None
        if seed is not None:
            first, second = weft.random.PRNGKey(seed), weft.random.PRNGKey(seed + 1)
            if map_rng is not None:
                first, second = map_rng(first), map_rng(second)
        init, apply = transform_with_state(lambda: f(*args, **kwargs))
        if jax_transform is not None:
            init, apply = jax_transform(init), jax_transform(apply)
        params, state = init(first)
        if not run_apply:
            return params, state
        return apply(params, state, second)[0]

    return run


_suggest(__name__)
