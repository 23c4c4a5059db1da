"""Staging of one signature: trace the function on types, and collect what a call needs besides the jaxpr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from weft.api import ref_arguments
from weft.api.automatic import Proposal, assume
from weft.api.call import Call
from weft.api.flat import OutTree, flat_function, wraps
from weft.api.options import JitOptions
from weft.api.ref_arguments import StagedRefs
from weft.api.staged import StagedFunction, warn_of_constants
from weft.base import collector, events
from weft.base.dataclass import dataclass
from weft.base.settings import config
from weft.base.source import Location
from weft.base.spans import span
from weft.indexing.guards import Assumptions, answering
from weft.trace.refs import Ref, Touched
from weft.trace.stage import stage
from weft.trace.tracer import Tracer
from weft.transforms.key_reuse import check_key_reuse


@dataclass(frozen=True)
class Staging:
    """Result of staging: the staged function, the seconds of tracing, and whether later calls may use it.

    They may not if the function closes over values of the trace around this call, or writes mutable arrays made there.
    """

    staged: StagedFunction
    seconds: float
    is_reusable: bool


@collector.without_collection
def stage_call(
    function: Callable[..., Any],
    options: JitOptions,
    call: Call,
    types: Sequence[Any],
    proposal: Proposal | None,
    name: str,
    where: str,
    location: Location | None,
) -> Staging:
    """Trace `function` on the types of a call, or on those of a `proposal`, which have symbolic sizes.

    `name` is the function's name, `where` describes it in errors and `location` is the line of the call.
    """
    out = OutTree()
    touched: list[tuple[Any, bool]] = []
    escaped: list[Ref] = []
    paths = call.paths()
    flat = flat_function(fix_static(function, call), call.in_tree, out)
    flat, types, arguments, written = ref_arguments.with_ref_arguments(flat, types, call.leaves, escaped)
    answers = assume(types) if proposal is None else proposal.answers
    started = time.perf_counter()
    with span("trace", name, location), answering(answers) if answers is not None else contextlib.nullcontext():
        jaxpr, constants = stage(flat, types, where=where, names=paths, name=name, refs=touched)
    if proposal is not None:
        jaxpr = proposal.check(jaxpr, out.treedef)
    seconds = time.perf_counter() - started
    events.took(events.TRACING, seconds, fun_name=name)
    warn_of_constants(name, constants)
    if config.debug_key_reuse:
        check_key_reuse(jaxpr)
    refs = StagedRefs(arguments, written, [Touched(*t) for t in touched]) if touched or any(arguments) else None
    staged = StagedFunction(
        jaxpr, constants, out.treedef, name, call.donation_flags(options), refs, paths=paths, contract=options.contract
    )
    if isinstance(answers, Assumptions):
        staged.assumptions = tuple(answers.assumed.values())
    is_reusable = (
        not any(isinstance(c, Tracer) for c in constants)
        and not (call.static and call.static.has_uncomparable)
        and all(ref.is_outside for ref, _ in touched)
        and not (escaped and ref_arguments.has_backward_rules(jaxpr))
    )
    return Staging(staged, seconds, is_reusable)


def fix_static(function: Callable[..., Any], call: Call) -> Callable[..., Any]:
    """Return the function of the dynamic arguments, with the static arguments of a call."""
    static = call.static
    if not static:
        return function

    def of_dynamic(*dynamic: Any, **rest: Any) -> Any:
        args, kwargs = static.merge(dynamic, rest)
        return function(*args, **kwargs)

    return wraps(call.function)(of_dynamic)
