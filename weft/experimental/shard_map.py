"""`shard_map` with the parameters of its older form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.api.shard_map import shard_map as _shard_map
from weft.base.publish import publish as _publish


def shard_map(
    f: Callable[..., Any], mesh: Any, in_specs: Any, out_specs: Any, check_rep: bool = True
) -> Callable[..., Any]:
    """Call `weft.shard_map`, whose `check_vma` is named `check_rep` here."""
    return _shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_rep)


_publish(__name__)
