"""Requests and results of pullbacks that are bound to mutable arrays: `pullback.with_refs(...)` of `weft.vjp`."""

from weft.api.vjp import VJP, DidntWant, DontWant, GradRef, GradValue, NotNeeded, NotSaveable
from weft.base.publish import publish as _publish

__all__ = ["VJP", "DidntWant", "DontWant", "GradRef", "GradValue", "NotNeeded", "NotSaveable"]

_publish(__name__)
