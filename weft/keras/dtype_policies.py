"""Dtype policies: what layers compute in, and what their variables have."""

from typing import Any

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.core.policy import (
    DTypePolicy as DTypePolicy,
    DTypePolicyMap as DTypePolicyMap,
    FloatDTypePolicy as FloatDTypePolicy,
    get_policy as _get_policy,
)


def get(identifier: Any) -> DTypePolicy:
    """Return the policy for an argument `dtype=`.

    Args:
        identifier: None (the global policy), a policy, its name, a dtype, or a config of `serialize`.

    Example:
        >>> from weft import keras
        >>> keras.dtype_policies.get("mixed_float16")
        <DTypePolicy "mixed_float16">
    """
    return _get_policy(identifier)


def serialize(dtype_policy: DTypePolicy) -> dict[str, Any]:
    """Convert a policy to plain data.

    Args:
        dtype_policy: the policy.
    """
    return _registry.serialize_keras_object(dtype_policy)


def deserialize(config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> DTypePolicy:
    """Construct a policy from the data of `serialize`.

    Args:
        config: plain data.
        custom_objects: further classes by name.
    """
    return _registry.deserialize_keras_object(config, custom_objects, kind="dtype_policies")


_publish(__name__)
