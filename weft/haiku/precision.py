"""Policies of mixed precision: dtypes of parameters, computation and results; and scaling of losses."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import weft
from weft import lax, numpy as wnp
from weft.errors import ArgumentError

_SHORT = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "f16": "float16",
    "float16": "float16",
    "f32": "float32",
    "float32": "float32",
    "f64": "float64",
    "float64": "float64",
}
_ROLES = {
    "p": "param_dtype",
    "params": "param_dtype",
    "c": "compute_dtype",
    "compute": "compute_dtype",
    "o": "output_dtype",
    "output": "output_dtype",
}


def half_dtype() -> Any:
    """Return the 16-bit floating dtype of this machine: float16 on GPUs, else bfloat16."""
    return wnp.float16 if weft.default_backend() == "gpu" else wnp.bfloat16


def _parse_dtype(text: str, whole: str) -> Any:
    if text == "half":
        return wnp.dtype(half_dtype())
    if text == "full":
        return wnp.dtype(wnp.float32)
    if text in _SHORT:
        return wnp.dtype(getattr(wnp, _SHORT[text]))
    raise ArgumentError(f"Policy {whole!r} has the dtype {text!r}; {', '.join(_SHORT)}, half or full is expected.")


def cast_floating(tree: Any, dtype: Any) -> Any:
    """Cast the floating-point arrays of a tree; other leaves are unchanged."""

    def cast(leaf: Any) -> Any:
        if isinstance(leaf, (weft.Array, np.ndarray)) and wnp.issubdtype(leaf.dtype, wnp.floating):
            return leaf if leaf.dtype == dtype else wnp.asarray(leaf).astype(dtype)
        return leaf

    return weft.tree.map(cast, tree)


def cast_to_half(tree: Any) -> Any:
    """Cast floating-point arrays to `half_dtype`."""
    return cast_floating(tree, wnp.dtype(half_dtype()))


def cast_to_full(tree: Any) -> Any:
    """Cast floating-point arrays to float32."""
    return cast_floating(tree, wnp.dtype(wnp.float32))


@dataclasses.dataclass(frozen=True)
class Policy:
    """Dtypes of parameters, of computation and of results."""

    param_dtype: Any
    compute_dtype: Any
    output_dtype: Any

    def cast_to_param(self, tree: Any) -> Any:
        """Cast floating-point arrays to the dtype of parameters."""
        return cast_floating(tree, self.param_dtype)

    def cast_to_compute(self, tree: Any) -> Any:
        """Cast floating-point arrays to the dtype of computation."""
        return cast_floating(tree, self.compute_dtype)

    def cast_to_output(self, tree: Any) -> Any:
        """Cast floating-point arrays to the dtype of results."""
        return cast_floating(tree, self.output_dtype)

    def with_output_dtype(self, output_dtype: Any) -> Policy:
        """Return the policy with another dtype of results."""
        return dataclasses.replace(self, output_dtype=output_dtype)

    def __str__(self) -> str:
        return ",".join(
            f"{role}={_shown(dtype)}"
            for role, dtype in (("p", self.param_dtype), ("c", self.compute_dtype), ("o", self.output_dtype))
        )


def _shown(dtype: Any) -> str:
    name = str(wnp.dtype(dtype))
    return {"float32": "full", "bfloat16": "bf16", "float16": "f16", "float64": "f64"}.get(name, name)


def get_policy(policy_name: str) -> Policy:
    """Parse a policy: one dtype for all ('bf16', 'half'), or 'params=float32,compute=bfloat16,output=float32'."""
    found: dict[str, Any] = {}
    for part in policy_name.split(","):
        role, equals, dtype = part.strip().partition("=")
        if not equals:
            if "," in policy_name:
                raise ArgumentError(f"Policy {policy_name!r} needs params=, compute= or output= before {part!r}.")
            return Policy(*(_parse_dtype(role, policy_name),) * 3)
        if role not in _ROLES:
            raise ArgumentError(f"Policy {policy_name!r} has the role {role!r}; params, compute or output is expected.")
        found[_ROLES[role]] = _parse_dtype(dtype, policy_name)
    found.setdefault("param_dtype", wnp.dtype(wnp.float32))
    found.setdefault("compute_dtype", found["param_dtype"])
    found.setdefault("output_dtype", found["compute_dtype"])
    return Policy(**found)


# --------------------------------------------------------------------------------------------------- scaling of losses


def all_finite(tree: Any) -> Any:
    """Return whether all numbers of a tree are finite."""
    leaves = weft.tree.leaves(tree)
    if not leaves:
        return wnp.asarray(True)
    return wnp.all(wnp.stack([wnp.all(wnp.isfinite(leaf)) for leaf in leaves]))


def select_tree(pred: Any, a: Any, b: Any) -> Any:
    """Return the tree `a` where a flag is true, else `b`."""
    if getattr(pred, "ndim", 0) != 0:
        raise ArgumentError(f"select_tree needs one flag, got shape {pred.shape}.")
    return weft.tree.map(lambda x, y: lax.select(wnp.asarray(pred), wnp.asarray(x), wnp.asarray(y)), a, b)


@weft.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class NoOpLossScale:
    """A loss scale of 1."""

    @property
    def loss_scale(self) -> Any:
        """The scale."""
        return 1

    def scale(self, tree: Any) -> Any:
        """Return the tree unchanged."""
        return tree

    def unscale(self, tree: Any) -> Any:
        """Return the tree unchanged."""
        return tree

    def adjust(self, grads_finite: Any) -> NoOpLossScale:
        """Return the same scale."""
        del grads_finite
        return self


def _times(tree: Any, factor: Any) -> Any:
    return weft.tree.map(lambda x: x * wnp.asarray(factor).astype(x.dtype), tree)


@weft.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class StaticLossScale:
    """A constant loss scale."""

    loss_scale: Any

    def scale(self, tree: Any) -> Any:
        """Multiply a tree by the scale."""
        return _times(tree, self.loss_scale)

    def unscale(self, tree: Any) -> Any:
        """Divide a tree by the scale."""
        return _times(tree, 1 / wnp.asarray(self.loss_scale))

    def adjust(self, grads_finite: Any) -> StaticLossScale:
        """Return the same scale."""
        del grads_finite
        return self

    def tree_flatten(self) -> Any:
        """Flatten to the scale, which is data."""
        return (self.loss_scale,), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> StaticLossScale:
        """Rebuild from the scale."""
        return cls(*children)


@weft.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class DynamicLossScale:
    """A loss scale that is multiplied by `factor` after `period` finite gradients, and divided by it after others."""

    loss_scale: Any
    counter: Any = dataclasses.field(default_factory=lambda: np.zeros([], np.int32))
    period: int = 2000
    factor: int = 2
    min_loss_scale: Any = dataclasses.field(default_factory=lambda: np.ones([], np.float32))

    def scale(self, tree: Any) -> Any:
        """Multiply a tree by the scale."""
        return _times(tree, self.loss_scale)

    def unscale(self, tree: Any) -> Any:
        """Divide a tree by the scale."""
        return _times(tree, 1 / wnp.asarray(self.loss_scale))

    def adjust(self, grads_finite: Any) -> DynamicLossScale:
        """Return the scale after a step whose gradients were finite or not."""
        scale = wnp.asarray(self.loss_scale)
        is_due = self.counter == self.period - 1
        larger = wnp.where(wnp.isfinite(scale * self.factor), scale * self.factor, scale)
        smaller = wnp.maximum(scale / self.factor, wnp.asarray(self.min_loss_scale))
        grown = wnp.where(is_due, larger, scale)
        counted = wnp.where(is_due, 0, wnp.asarray(self.counter) + 1)
        return dataclasses.replace(
            self,
            loss_scale=wnp.where(grads_finite, grown, smaller).astype(scale.dtype),
            counter=wnp.where(grads_finite, counted, 0).astype(np.int32),
        )

    def tree_flatten(self) -> Any:
        """Flatten to the scale and counter as data."""
        return (self.loss_scale, self.counter, self.min_loss_scale), (self.period, self.factor)

    @classmethod
    def tree_unflatten(cls, fixed: Any, children: Any) -> DynamicLossScale:
        """Rebuild from data and static numbers."""
        loss_scale, counter, min_loss_scale = children
        period, factor = fixed
        return cls(loss_scale, counter, period, factor, min_loss_scale)
