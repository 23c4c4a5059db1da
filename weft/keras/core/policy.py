"""Which dtype a layer computes in, and which its variables have."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError
from weft.keras.core.config import epsilon as epsilon, floatx as floatx, is_float_dtype, standardize_dtype
from weft.keras.core.tables import register

_MIXED = {"mixed_float16": ("float16", "float32"), "mixed_bfloat16": ("bfloat16", "float32")}
_global: list[DTypePolicy] = []  # at most one


class DTypePolicy:
    """The dtypes of a layer: what it computes in, and what its variables have.

    Args:
        name: a dtype, which is both, or "mixed_float16" or "mixed_bfloat16": half precision with variables of float32.
            None takes the global policy.

    Example:
        >>> from weft import keras
        >>> policy = keras.DTypePolicy("mixed_bfloat16")
        >>> policy.compute_dtype, policy.variable_dtype
        ('bfloat16', 'float32')
    """

    quantization_mode: str | None = None

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            name = dtype_policy().name
        if not isinstance(name, str):
            raise ArgumentTypeError(
                "The name of a dtype policy must be a string, such as 'mixed_float16'.", received=f"name={name!r}"
            )
        self._name = name
        self._compute_dtype, self._variable_dtype = _MIXED.get(name) or _both(name)

    @property
    def name(self) -> str:
        """The name that it was constructed with."""
        return self._name

    @property
    def compute_dtype(self) -> str:
        """The dtype that floats of inputs and variables are cast to in a call."""
        return self._compute_dtype

    @property
    def variable_dtype(self) -> str:
        """The dtype of new variables."""
        return self._variable_dtype

    def convert_input(self, x: Any, autocast: bool, dtype: str) -> Any:
        """Convert an argument of a layer's call to an array, with `autocast` a float one to `dtype`.

        Anything else (None, a string, a KerasTensor, ...) is returned unchanged.
        """
        if isinstance(x, weft.Array):
            if autocast and str(x.dtype) != dtype and is_float_dtype(x.dtype):
                return x.astype(dtype)
            return x
        # A table of pandas has a shape, and a dtype for each column.
        is_array = hasattr(x, "__array__") and hasattr(x, "shape") and not hasattr(x, "serialized_keras_tensor")
        if not is_array:
            return x
        return self.convert_input(wnp.asarray(x if hasattr(x, "dtype") else np.asarray(x)), autocast, dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DTypePolicy:
        """Construct a policy from a config of `get_config`."""
        return cls(**config)

    def __repr__(self) -> str:
        return f'<DTypePolicy "{self.name}">'

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypePolicy) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class FloatDTypePolicy(DTypePolicy):
    """The same as `DTypePolicy`; an older name."""


class DTypePolicyMap(DTypePolicy, MutableMapping[str, DTypePolicy]):
    """A policy for each path of a layer: for the layer at a path, the policy of the longest entry that its path begins
    with, else the default.

    Args:
        default_policy: for layers without an entry; None is the global policy at the time of the look-up.
        policy_map: policies by path.
    """

    def __init__(self, default_policy: Any = None, policy_map: dict[str, Any] | None = None) -> None:
        self._default = None if default_policy is None else get_policy(default_policy)
        self._map = {path: get_policy(policy) for path, policy in (policy_map or {}).items()}
        super().__init__(self.default_policy.name)

    @property
    def default_policy(self) -> DTypePolicy:
        """The policy of layers without an entry."""
        return self._default or dtype_policy()

    def __getitem__(self, path: str) -> DTypePolicy:
        fitting = [entry for entry in self._map if path == entry or path.startswith(entry + "/")]
        return self._map[max(fitting, key=len)] if fitting else self.default_policy

    def __setitem__(self, path: str, policy: Any) -> None:
        if path in self._map:
            raise ArgumentError("There is a policy for this path already; delete it first.", received=f"path={path!r}")
        self._map[path] = get_policy(policy)

    def __delitem__(self, path: str) -> None:
        del self._map[path]

    def __contains__(self, path: object) -> bool:
        # A look-up finds a policy for every path.
        return path in self._map

    def __len__(self) -> int:
        return len(self._map)

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypePolicyMap) and (self._default, self._map) == (other._default, other._map)

    def __hash__(self) -> int:
        return id(self)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            "default_policy": self._default and {"class_name": "DTypePolicy", "config": self._default.get_config()},
            "policy_map": {
                path: {"class_name": "DTypePolicy", "config": policy.get_config()} for path, policy in self._map.items()
            },
        }


def _both(name: str) -> tuple[str, str]:
    try:
        dtype = standardize_dtype(name)
    except ArgumentError:
        raise ArgumentError(
            "A dtype policy must be 'mixed_float16', 'mixed_bfloat16' or the name of a dtype.",
            received=f"name={name!r}",
        ) from None
    return dtype, dtype


def dtype_policy() -> DTypePolicy:
    """Return the policy of layers that are constructed without one; `floatx()` unless `set_dtype_policy` was called.

    Example:
        >>> from weft import keras
        >>> keras.config.dtype_policy()
        <DTypePolicy "float32">
    """
    return _global[0] if _global else DTypePolicy(floatx())


def set_dtype_policy(policy: Any) -> None:
    """Set the policy of layers that are constructed without one: a `DTypePolicy` or its name; None is `floatx()`."""
    _global[:] = [] if policy is None else [get_policy(policy)]


def get_policy(identifier: Any) -> DTypePolicy:
    """Return the policy for an argument `dtype=`: None (the global one), a policy, its name, a dtype, or a config."""
    if identifier is None:
        return dtype_policy()
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):
        config = identifier.get("config", identifier)
        maps = identifier.get("class_name") == "DTypePolicyMap" or "policy_map" in config
        return DTypePolicyMap(**config) if maps else DTypePolicy(**config)
    if isinstance(identifier, str):
        return DTypePolicy(identifier)
    try:
        return DTypePolicy(standardize_dtype(identifier))
    except ArgumentError:
        raise ArgumentError(
            "`dtype` must be a dtype, a DTypePolicy, or the name of one.", received=f"dtype={identifier!r}"
        ) from None


register("dtype_policies", DTypePolicy, DTypePolicyMap, FloatDTypePolicy, module="keras")
