"""Requests and results of pullbacks that are bound to mutable arrays: `pullback.with_refs(...)` of `weft.vjp`."""

from weft.api.vjp import (
    VJP as VJP,
    DidntWant as DidntWant,
    DontWant as DontWant,
    GradRef as GradRef,
    GradValue as GradValue,
    NotNeeded as NotNeeded,
    NotSaveable as NotSaveable,
)
from weft.base.publish import publish as _publish

_publish(__name__)
