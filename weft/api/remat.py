"""`checkpoint` (also called `remat`): trade memory for recomputation in reverse mode; policies select the results that
are saved."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.api.call import StaticArguments
from weft.api.flat import OutTree, argument_paths, as_tuple, check_callable, check_leaves, flat_function, get_name
from weft.api.jit_function import JitFunction
from weft.api.options import JitOptions
from weft.api.staged import StagedFunction
from weft.base import tree
from weft.base.errors import ArgumentError
from weft.base.tracebacks import boundary
from weft.ir.types import get_aval
from weft.primitives.control.remat import checkpoint as checkpoint_primitive, checkpoint_name as name_primitive
from weft.sharding.device import MEMORY_KINDS
from weft.trace.stage import StagedTracer, stage
from weft.transforms.linearize import linearize_flat

# Decides whether the results of an operation are saved: `Saveable` or True, `Offloadable`, `Recompute` or False.
Policy = Callable[..., Any]


class RecomputeType:
    """Result of a policy for values that are recomputed."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "Recompute"


class SaveableType:
    """Result of a policy for values that are saved."""

    def __repr__(self) -> str:
        return "Saveable"


Recompute, Saveable = RecomputeType(), SaveableType()


class Offloadable(NamedTuple):
    """Result of a policy for values that are saved in the memory `dst`, and copied back to `src` for the backward pass.
    A device with one memory only, such as a CPU, saves them there."""

    src: str
    dst: str


class _Rematerialised(JitFunction):
    """Function that is staged like `jit`, once per signature, and called through `checkpoint`."""

    _transformation = "checkpoint"
    policy: Policy | None
    prevent_cse: bool

    def _split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], StaticArguments | tuple[()]]:
        """Split off static arguments, which need no hash: a function of one without is staged at each call."""
        dynamic, rest, static = super()._split(args, kwargs)
        return dynamic, rest, static.hold_uncomparable() if static else ()

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        staged, call = self._find(args, kwargs)
        if staged.refs is not None:
            return self._call_with_refs(staged.refs, staged, call)
        return staged.result(self._bind(staged, (*staged.constants, *call.leaves)))

    def _bind(self, staged: StagedFunction, operands: Sequence[Any]) -> Sequence[Any]:
        result: Sequence[Any] = checkpoint_primitive(
            *operands,
            jaxpr=staged.jaxpr, policy=self.policy, prevent_cse=self.prevent_cse, differentiated=False,
            name=staged.params["name"],
        )  # fmt: skip
        return result


def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: bool = False,
) -> Any:
    """Recompute the intermediate values of `fun` in the backward pass instead of saving them.

    `policy(primitive, *types, **params)` selects operations whose results are saved nevertheless (see
    `checkpoint_policies`).

    Args:
        fun: a function of arrays.
        prevent_cse: whether the second computation is fenced off from the first, so that memory is saved under `jit`;
            in a loop it may be False.
        policy: which results are saved; None saves the arguments only.
        static_argnums, static_argnames: arguments that are Python values.
        concrete: accepted for compatibility; must be False.

    Returns:
        A function with the results and derivatives of `fun`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> f = weft.checkpoint(lambda x: wnp.sin(wnp.sin(x)))
    >>> weft.grad(f)(1.0).round(3)
    Array(0.36, dtype=float32, weak_type=True)
    """
    if concrete:
        fix = "mark arguments that Python control flow depends on with static_argnums"
        raise ArgumentError("checkpoint: concrete=True is not needed.", fix=fix)
    if fun is None:
        return functools.partial(
            checkpoint,
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
        )
    check_callable(fun, "checkpoint")
    wrapped = _Rematerialised(
        fun, JitOptions(static_argnums=as_tuple(static_argnums), static_argnames=as_tuple(static_argnames))
    )
    wrapped.policy, wrapped.prevent_cse = policy, prevent_cse
    return wrapped


remat = checkpoint


def checkpoint_name(x: Any, name: str) -> Any:
    """Return `x`, with each leaf under a name that policies can refer to.

    Args:
        x: a tree of arrays.
        name: a string.

    Returns:
        `x`, unchanged.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.ad_checkpoint import checkpoint_name
    >>> policy = weft.checkpoint_policies.save_only_these_names("hidden")
    >>> f = weft.checkpoint(lambda x: wnp.sin(checkpoint_name(wnp.sin(x), "hidden")), policy=policy)
    >>> weft.grad(f)(1.0).round(3)
    Array(0.36, dtype=float32, weak_type=True)
    """
    return tree.map(lambda leaf: name_primitive(leaf, name=name), x)


# -- policies ---------------------------------------------------------------------------------------------------------


def everything_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
    """Save every intermediate value, as without a checkpoint."""
    return True


def nothing_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
    """Save nothing but the arguments.

    Args:
        primitive: the primitive of an equation.
        *types: the types of its operands.
        **params: its parameters.

    Returns:
        False.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> f = weft.checkpoint(wnp.sin, policy=weft.checkpoint_policies.nothing_saveable)
    >>> weft.grad(f)(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return False


def dots_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
    """Save results of contractions."""
    return primitive.name in ("dot_general", "conv_general_dilated")


checkpoint_dots = dots_saveable


def dots_with_no_batch_dims_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
    """Save results of contractions without batch dimensions: matmuls with weights, not those of activations.

    Args:
        primitive: the primitive of an equation.
        *types: the types of its operands.
        **params: its parameters.

    Returns:
        Whether the result is saved.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> policy = weft.checkpoint_policies.checkpoint_dots_with_no_batch_dims
    >>> f = weft.checkpoint(lambda w: wnp.tanh(w @ wnp.ones(2)).sum(), policy=policy)
    >>> weft.grad(f)(wnp.zeros((1, 2)))
    Array([[1., 1.]], dtype=float32)
    """
    if primitive.name != "dot_general":
        return False
    (_, _), (left, right) = params["dimension_numbers"]
    return not left and not right


checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


def save_only_these_names(*names: str) -> Policy:
    """Save values that `checkpoint_name` gave one of `names`.

    Args:
        *names: names that `checkpoint_name` has given.

    Returns:
        A policy for `checkpoint`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.checkpoint(wnp.sin, policy=weft.checkpoint_policies.save_only_these_names("a"))(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    wanted = frozenset(names)
    return lambda primitive, *types, **params: primitive.name == "name" and params["name"] in wanted


def save_any_names_but_these(*names: str) -> Policy:
    """Save values with a name of `checkpoint_name`, except `names`."""
    unwanted = frozenset(names)
    return lambda primitive, *types, **params: primitive.name == "name" and params["name"] not in unwanted


def save_anything_except_these_names(*names: str) -> Policy:
    """Save every value, except those with one of `names`."""
    unwanted = frozenset(names)
    return lambda primitive, *types, **params: primitive.name != "name" or params["name"] not in unwanted


def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Save the values that either policy saves."""
    return lambda primitive, *types, **params: (
        policy_1(primitive, *types, **params) or policy_2(primitive, *types, **params)
    )


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Save results of contractions without batch dimensions in the memory `offload_dst`."""
    offloaded = make_offload(offload_src, offload_dst)
    return lambda primitive, *types, **params: (
        offloaded if dots_with_no_batch_dims_saveable(primitive, *types, **params) else Recompute
    )


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """Save values with a name of `checkpoint_name`: some on the device, some in the memory `offload_dst`."""
    saved, moved = frozenset(names_which_can_be_saved), frozenset(names_which_can_be_offloaded)
    if saved & moved:
        what = "save_and_offload_only_these_names: a name must be either saved or offloaded."
        raise ArgumentError(what, received=f"in both: {', '.join(sorted(saved & moved))}")
    offloaded = make_offload(offload_src, offload_dst)

    def policy(primitive: Any, *types: Any, **params: Any) -> Any:
        name = params["name"] if primitive.name == "name" else None
        return Saveable if name in saved else offloaded if name in moved else Recompute

    return policy


def make_offload(src: str, dst: str) -> Offloadable:
    """Return the result of a policy for offloaded values; raise unless both arguments are memories."""
    for kind in (src, dst):
        if kind not in MEMORY_KINDS:
            what = "offload_src and offload_dst must be memories of devices."
            raise ArgumentError(what, received=repr(kind), fix=f"one of {', '.join(map(repr, MEMORY_KINDS))}")
    return Offloadable(src, dst)


# -- inspecting residuals ----------------------------------------------------------------------------------------


def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[tuple[Any, str]]:
    """Return the types of the residuals that reverse mode of `f(*args)` saves, and the origin of each: arguments first,
    in their order."""
    leaves, in_tree = tree.flatten((args, kwargs))
    check_leaves(f, "saved_residuals", leaves, args, kwargs)
    paths = argument_paths(f, args, kwargs)
    found: list[tuple[Any, str]] = []

    def flat(*values: Any) -> list[Any]:
        results, linear, _ = linearize_flat(flat_function(f, in_tree, OutTree()), values)
        stored = {id(c) for c in linear.consts}
        arguments = {id(v): f"from the argument {p}" for v, p in zip(values, paths, strict=True)}
        found.extend((get_aval(v), arguments[id(v)]) for v in values if id(v) in stored)
        found.extend((get_aval(c), origin(c)) for c in linear.consts if id(c) not in arguments)
        return results

    stage(flat, [get_aval(leaf) for leaf in leaves], where=f"saved_residuals of {get_name(f)}")
    return found


def origin(residual: Any) -> str:
    """Describe the operation that computed a residual, inside of calls too, with its line."""
    if not isinstance(residual, StagedTracer):
        return "from a constant"
    equations, variable = residual._trace.equations, residual._var  # type: ignore[attr-defined]
    text = "from a constant"
    while True:
        equation = next((e for e in equations if variable in e.outvars), None)
        if equation is None:
            return text
        source = equation.source
        line = "an unknown line" if source is None else f"{source.file_and_line()} ({source.function})"
        named = equation.primitive is name_primitive
        what = f"named {equation.params['name']!r}" if named else f"output of {equation.primitive.name}"
        text = f"{what} from {line}"
        jaxpr = equation.params.get("jaxpr")
        if jaxpr is None or len(jaxpr.outvars) != len(equation.outvars):
            return text
        equations, variable = jaxpr.eqns, jaxpr.outvars[equation.outvars.index(variable)]


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print the `saved_residuals`, one per line."""
    for aval, origin in saved_residuals(f, *args, **kwargs):
        print(f"{aval.short()} {origin}")
