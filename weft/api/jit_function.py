"""The function that `jit` returns: stage it once per signature, run the compiled jaxpr, expose the stages."""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any

from weft.api import ref_arguments
from weft.api.automatic import Proposal, assuming
from weft.api.cache_report import CacheReport, cache_for
from weft.api.contract import Contract
from weft.api.explain import explain_miss, logger
from weft.api.flat import (
    MISS,
    Dispatcher,
    OutTree,
    adopt,
    argument_paths,
    check_leaves,
    flat_function,
    name_of,
    parameter_names,
    resolve,
    types_of,
    wraps,
)
from weft.api.hints import hint_of
from weft.api.ref_arguments import StagedRefs
from weft.api.shardings import argument_shardings, is_sharding, placed_argument, single_device, with_out_shardings
from weft.api.staged import StagedFunction, warn_of_constants
from weft.api.stages import Lowered, Origin, Traced, with_structs
from weft.base import collector, events, tree
from weft.base.errors import ArgumentError, UnhashableStaticArgumentError, message
from weft.base.settings import config, default_device
from weft.base.source import user_line, user_location
from weft.base.spans import span
from weft.base.tracebacks import boundary, conceal
from weft.indexing.guards import Assumptions, answering, current
from weft.ir.at_sizes import has_rules_for_symbols
from weft.ir.context import EVALUATION, context
from weft.ir.interpreter import replay
from weft.primitives.control.call import jit as jit_primitive
from weft.runtime import guards, spmd
from weft.runtime.array import ConcreteArray, put
from weft.runtime.device import HOME, Placement, placement_of
from weft.runtime.execute import executable_of
from weft.runtime.placing import check_on_mesh, common_placement, used_arguments
from weft.runtime.sharded import ShardedArray
from weft.sharding.device import Device
from weft.trace.refs import Ref, Touched, check_no_refs_twice, check_not_both
from weft.trace.stage import stage
from weft.trace.tracer import Tracer
from weft.transforms.key_reuse import check_key_reuse

LIMIT = 4096  # signatures cached per function


MOST_SIZES = 1024  # and sizes cached per symbolic signature: others take milliseconds to instantiate again


# The call of a signature that generates a dispatcher for it. A function finds its dispatchers by hints: at most
# `MOST_HINTS` of them, with at most `MOST_OF_HINT` dispatchers each.
CALLS_BEFORE_DISPATCH = 2


MOST_HINTS, MOST_OF_HINT = 1024, 8


# Python limits the nesting of expressions, so deeper trees have no dispatcher.
DEEPEST_DISPATCH = 50


def where(leaf: Any) -> Any:
    """Return the sharding of an argument that is sharded, else its placement."""
    if type(leaf) is ShardedArray:
        return leaf.sharding
    return leaf._placement if isinstance(leaf, ConcreteArray) else HOME


# Callbacks that receive a jitted function and its arguments before it is staged for them.
watchers: list[Callable[[JitFunction, tuple[Any, ...], dict[str, Any]], None]] = []


class _Signature:
    """Descriptor of `__signature__`: the wrapped function's signature, for readers that do not follow `__wrapped__`."""

    def __get__(self, instance: Any, owner: Any = None) -> inspect.Signature:
        if instance is None:
            raise AttributeError("__signature__")
        try:
            return inspect.signature(instance._function)
        except (TypeError, ValueError) as error:
            raise AttributeError("__signature__") from error


class JitFunction:
    """Function that is staged on its first call for each signature."""

    _transformation = "jit"

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: tuple[int, ...],
        static_argnames: tuple[str, ...],
        donate_argnums: tuple[int, ...],
        donate_argnames: tuple[str, ...],
        inline: bool,
        device: Device | None = None,
        contract: Contract | None = None,
        in_shardings: Any = None,
        out_shardings: Any = None,
        complete_static: bool = True,
    ):
        adopt(self, function)
        self._contract = contract
        self._function = function
        self._static_argnums, self._static_argnames = resolve(
            function, static_argnums, static_argnames, complete_static
        )
        self._donate_argnums, self._donate_argnames = resolve(function, donate_argnums, donate_argnames)
        both = set(self._static_argnums) & set(self._donate_argnums) or set(self._static_argnames) & set(
            self._donate_argnames
        )
        if both:
            what = f"jit of {name_of(function)}: an argument cannot be both static and donated."
            jax = f"static_argnames and donate_argnames cannot intersect: {', '.join(sorted(map(str, both)))}."
            raise ArgumentError(what, received=f"argument {', '.join(sorted(map(str, both)))} in both", jax=jax)
        self._inline = inline
        caller = f"{self._transformation} of {name_of(function)}"
        self._in_shardings, self._out_shardings = in_shardings, out_shardings
        named = single_device((in_shardings, out_shardings), caller)
        self._device = device if named is None else named
        self._traced_function = function
        if out_shardings is not None and named is None:
            self._traced_function = wraps(function)(with_out_shardings(function, out_shardings, caller))
        shardings = tree.flatten((in_shardings, out_shardings), is_leaf=is_sharding)
        options = (self._static_argnums, self._static_argnames, self._donate_argnums, self._donate_argnames, contract)
        self._cache = cache_for(function, (*options, *map(tuple, shardings[:1]), shardings[1]))
        self._simple = not (self._static_argnums or self._static_argnames)
        # Dispatchers compare static arguments by equality, which is right for `_split` of this class only.
        self._dispatches = self._simple or type(self)._split is JitFunction._split
        self._recent: tuple[Dispatcher, ...] = ()  # at most two of the last calls, tried before anything else
        self._dispatchers: dict[Any, tuple[Dispatcher, ...]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            recent = self._recent
            for dispatch in recent:
                result = dispatch(args, kwargs)
                if result is not MISS:
                    return result
            if recent:
                for dispatch in self._dispatchers.get(hint_of(args, kwargs), ()):
                    if dispatch not in recent:
                        result = dispatch(args, kwargs)
                        if result is not MISS:
                            self._recent = (dispatch, recent[0])
                            return result
            return self._call(args, kwargs)
        except Exception as error:
            conceal(error)
            raise

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call without a dispatcher, and generate one if the signature has been called often enough."""
        if config.disable_jit:
            return self._traced_function(*args, **kwargs)
        staged, leaves = self._find(args, kwargs, automatic=context.trace is EVALUATION)
        if staged.refs is not None:
            return self._call_with_refs(staged.refs, staged, leaves)
        if context.trace is EVALUATION:
            if config.profiling:  # profiled calls have dispatchers of their own
                staged.timed_calls += 1
            else:
                staged.calls += 1
            calls = staged.timed_calls if config.profiling else staged.calls
            if self._device is not None:
                return staged.result(self._on_device(self._device, staged, leaves))
            placement = self._placement(staged, leaves, args, kwargs)
            checked = config.debug_key_reuse or guards.are_on()  # these check every call
            if calls >= CALLS_BEFORE_DISPATCH and self._dispatches and not staged.has_empty and not checked:
                self._specialise(staged, args, kwargs, leaves, placement)
        operands = (*staged.constants, *leaves)
        if self._inline and context.trace is not EVALUATION:
            results: Sequence[Any] = replay(staged.jaxpr, *operands)
        else:
            results = self._bind(staged, operands)
        return staged.result(results)

    def _call_with_refs(self, refs: StagedRefs, staged: StagedFunction, leaves: Sequence[Any]) -> Any:
        """Call a staged function that reads or writes mutable arrays, and write their new values back."""
        name = f"{self._transformation} of {name_of(self._function)}"
        check_not_both(leaves, refs.captured, name, lambda i: f"number {i}")
        alone = context.trace is EVALUATION
        operands = (*staged.constants, *refs.operands(leaves, alone))
        plain = alone and self._device is None
        results = self._run_with_refs(refs, staged, operands) if plain else self._bind(staged, operands)
        count = len(results) - refs.written_count
        refs.write_back(leaves, results[count:])
        return staged.result(results[:count])

    def _run_with_refs(self, refs: StagedRefs, staged: StagedFunction, operands: Sequence[Any]) -> Sequence[Any]:
        """Run the staged function as a jitted function of values, which has dispatchers of its own."""
        if refs.of_values is None:
            values = ref_arguments.function_of_values(staged.traced_params()["jaxpr"], staged.params["name"])
            donated = tuple(i for i, flag in enumerate(staged.donated) if flag)
            refs.of_values = JitFunction(values, (), (), donated, (), False)
        return refs.of_values(*operands)

    def _bind(self, staged: StagedFunction, operands: Sequence[Any]) -> Sequence[Any]:
        """Bind the call as one `jit` equation."""
        params = staged.params if context.trace is EVALUATION else staged.traced_params()
        return context.trace.process(jit_primitive, operands, params)  # type: ignore[arg-type]

    def _placement(self, staged: StagedFunction, leaves: Sequence[Any], args: Any, kwargs: Any) -> Placement:
        """Return the placement of the results; raise if arguments are committed to different devices."""

        def name(i: int) -> str:
            dynamic, rest, static = (args, kwargs, ()) if self._simple else self._split(args, kwargs)
            return argument_paths(self._function, dynamic, rest, self._dynamic_names(static))[i]

        used = used_arguments(staged.jaxpr)[len(staged.constants) :]
        caller = f"{self._transformation} of {name_of(self._function)}"
        placement = common_placement(leaves, caller, name, used)
        if placement.committed:
            mesh = spmd.mesh_of(staged.jaxpr, (*staged.constants, *leaves))
            if mesh is not None:
                check_on_mesh(leaves, mesh, caller, name, used)
        return placement

    def _on_device(self, device: Device, staged: StagedFunction, leaves: Sequence[Any]) -> Sequence[Any]:
        """Return the results of a call on a device, regardless of the devices that its arguments are committed to."""
        placement = placement_of(device, True)
        uncommitted_there = placement_of(device, False)
        if guards.are_on():
            guards.check_call(name_of(self._function), leaves, device, with_scalars=True)
        copies = [put(leaf, uncommitted_there) if isinstance(leaf, ConcreteArray) else leaf for leaf in leaves]
        with default_device(device):
            results = EVALUATION.process(jit_primitive, (*staged.constants, *copies), staged.params)  # type: ignore[arg-type]
        for leaf, copy, donated in zip(leaves, copies, staged.donated[len(staged.constants) :], strict=False):
            if donated and leaf is not copy:
                leaf._donate(user_location())
        return [put(r, placement) if isinstance(r, ConcreteArray) else r for r in results]

    def _specialise(
        self,
        staged: StagedFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Sequence[Any],
        placement: Placement,
    ) -> None:
        """Register a dispatcher for calls like this one, generating it first if there is none."""
        timed = config.profiling
        placements = tuple(map(where, leaves))
        key = (config.call_key(), placements)  # a dispatcher is valid for these settings only
        if key not in staged.dispatchers:
            # Imported here since it loads the compiler, which programs that never jit do not need.
            from weft.api.dispatch import dispatcher, spmd_dispatcher

            dynamic, rest, static = (args, kwargs, ()) if self._simple else self._split(args, kwargs)
            in_tree, out_tree, found = tree.structure((dynamic, rest)), staged.out_tree, None
            if max(in_tree.depth, out_tree.depth) <= DEEPEST_DISPATCH:
                types, operands = types_of(leaves), (*staged.constants, *leaves)
                mesh = spmd.mesh_of(staged.jaxpr, operands)
                if mesh is None:
                    executable = executable_of(staged.jaxpr, staged.donated, placement.device)
                    found = dispatcher(
                        executable,
                        in_tree,
                        types,
                        out_tree,
                        staged.constants,
                        staged.donated,
                        placements,
                        placement,
                        static,
                    )
                else:
                    compiled = spmd.compiled_for(staged.jaxpr, operands, mesh, staged.donated)
                    found = spmd_dispatcher(
                        compiled, in_tree, types, out_tree, staged.constants, staged.donated, placements, static
                    )
            staged.dispatchers[key] = found
        found = staged.dispatchers[key]
        if found is None:
            return
        known, hint = self._dispatchers, hint_of(args, kwargs)
        others = known.pop(hint, ())
        if found not in others:
            others = others[: MOST_OF_HINT - 1]
            # Dispatchers of profiled calls come last, so that ordinary calls need not try them first.
            others = (*others, found) if timed else (found, *others)
        known[hint] = others
        if len(known) > MOST_HINTS:
            with contextlib.suppress(RuntimeError):  # another thread may change it at the same time
                known.pop(next(iter(known)), None)
        if not timed or not self._recent:
            self._recent = (found, *self._recent[:1]) if found not in self._recent else self._recent

    def _find(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], automatic: bool = False
    ) -> tuple[StagedFunction, list[Any]]:
        """Return the staged function of this call, staging it if the signature is new, and the leaves to call it with.

        `automatic`: sizes that differ between calls may become symbols.
        """
        dynamic, dynamic_kwargs, static = (args, kwargs, ()) if self._simple else self._split(args, kwargs)
        leaves, in_tree = tree.flatten((dynamic, dynamic_kwargs))
        has_refs = any(type(leaf) is Ref for leaf in leaves)
        try:
            types = ref_arguments.types_with_refs(leaves) if has_refs else types_of(leaves)
        except TypeError:
            names = self._dynamic_names(static)
            arrays = [0 if isinstance(leaf, Ref) else leaf for leaf in leaves]
            check_leaves(self._function, self._transformation, arrays, dynamic, dynamic_kwargs, names)
            raise
        if has_refs:
            path = lambda i: argument_paths(self._function, dynamic, dynamic_kwargs, self._dynamic_names(static))[i]
            check_no_refs_twice(leaves, f"{self._transformation} of {name_of(self._function)}", path)
        if self._in_shardings is not None:
            leaves = self._placed(leaves, dynamic, dynamic_kwargs, static)
            types = types_of(leaves)
        key = (in_tree, types, static, config.key(), context.axes_key())
        try:
            staged = self._cache.get(key)
        except TypeError as error:
            self._raise_unhashable(static, error)
        if staged is None:
            for watch in watchers:
                watch(self, args, kwargs)
            new = (key, leaves, in_tree, types, dynamic, dynamic_kwargs, static)
            if automatic and not has_refs and self._can_be_automatic(key, leaves):
                staged = self._stage_for_all_sizes(*new)
            staged = self._stage(*new) if staged is None else staged
        elif len(self._cache) > LIMIT // 2:
            self._cache.touch(key)
        if context.trace is not EVALUATION and has_rules_for_symbols(staged.jaxpr):
            new = ((*key[:-1], (*key[-1], "traced")), leaves, in_tree, types, dynamic, dynamic_kwargs, static)
            staged = self._cache.get(new[0]) or JitFunction._stage(self, *new)
        if staged.assumptions and isinstance(current.answers, Assumptions):
            current.answers.assumed |= {a.expression: a for a in staged.assumptions}
        return staged, leaves

    def _placed(self, leaves: Sequence[Any], args: Any, kwargs: Any, static: Any) -> list[Any]:
        """Return the leaves of the arguments, resharded to `in_shardings`."""
        caller = f"{self._transformation} of {name_of(self._function)}"
        wanted = argument_shardings(self._in_shardings, args, kwargs, caller)
        paths = argument_paths(self._function, args, kwargs, self._dynamic_names(static))
        return [
            leaf if sharding is None else placed_argument(leaf, sharding, caller, path)
            for leaf, sharding, path in zip(leaves, wanted, paths, strict=True)
        ]

    def _can_be_automatic(self, key: Any, leaves: Sequence[Any]) -> bool:
        """Return whether sizes of this call may become symbols automatically: only on one CPU and without special
        options.
        """
        if config.symbolic_sizes != "auto" or type(self) is not JitFunction or self._contract is not None or key[4]:
            return False
        if config.checks == "all":  # checks of indices compare with numbers
            return False
        special = (self._device, self._in_shardings, self._out_shardings, config.mesh)
        if any(option is not None for option in special) or not self._can_keep(key[2]):
            return False
        return all(type(leaf) is not ShardedArray and where(leaf).device.platform == "cpu" for leaf in leaves)

    def _stage_for_all_sizes(
        self, key: Any, leaves: Any, in_tree: Any, types: Any, args: Any, kwargs: Any, static: Any
    ) -> StagedFunction | None:
        """Stage the function for symbolic sizes and instantiate it at those of this call; None if each size has its
        own.
        """
        families, rest = self._cache.automatic, (in_tree, *key[2:])
        if (found := families.find(rest, types)) is not None:
            return self._at_sizes(key, found[0].staged, found[1])
        paths = lambda: argument_paths(self._function, args, kwargs, self._dynamic_names(static))
        proposal = families.propose(rest, types, paths)
        if proposal is None:
            return None
        general_key = (in_tree, proposal.types, *key[2:])
        try:
            staged = self._stage(general_key, leaves, in_tree, proposal.types, args, kwargs, static, proposal)
            one_size = lambda: self._stage(key, leaves, in_tree, types, args, kwargs, static)
            proposal.compare(staged, lambda t: self._cache.get((in_tree, t, *key[2:])), one_size)
        except Exception as error:  # an error of the function itself is raised again for these sizes
            families.refuse(rest, proposal, name_of(self._function), error)
            return None
        families.add(rest, proposal, name_of(self._function), staged)
        return self._at_sizes(key, staged, proposal.sizes)

    def _at_sizes(self, key: Any, staged: StagedFunction, sizes: dict[Any, int]) -> StagedFunction:
        """Instantiate a symbolically staged function at concrete sizes, and cache the result."""
        at_sizes = staged.at_sizes(sizes)
        self._cache.keep(key, at_sizes, MOST_SIZES)
        return at_sizes

    @collector.without_collection
    def _stage(
        self,
        key: Any,
        leaves: Any,
        in_tree: Any,
        types: Any,
        args: Any,
        kwargs: Any,
        static: Any,
        proposal: Proposal | None = None,
    ) -> StagedFunction:
        paths = argument_paths(self._function, args, kwargs, self._dynamic_names(static))
        function, name = self._with_static(static), name_of(self._function)
        called = key if proposal is None else (in_tree, proposal.called, *key[2:])
        location, cause = user_location(), self._cache.cause(name, called, paths)
        if config.no_tracing:
            what = f"{self._transformation} would trace {name}, but the setting no_tracing is on: {cause}."
            raise RuntimeError(message(what, fix="call it before for arguments of these types", at=user_line()))
        if config.explain_cache_misses:
            explain_miss(cause, location)
        out = OutTree()
        where = f"{name}, {self._transformation} at {user_line()}"
        touched: list[tuple[Any, bool]] = []
        escaped: list[Ref] = []
        flat, types, arguments, written = ref_arguments.with_ref_arguments(
            flat_function(function, in_tree, out), types, leaves, escaped
        )
        started = time.perf_counter()
        answers = assuming(types) if proposal is None else proposal.answers
        with span("trace", name, location), answering(answers) if answers is not None else contextlib.nullcontext():
            jaxpr, constants = stage(flat, types, where=where, names=paths, name=name, refs=touched)
        if proposal is not None:
            jaxpr = proposal.checked(jaxpr, out.treedef)
        seconds = time.perf_counter() - started
        events.took(events.TRACING, seconds, fun_name=name)
        if config.log_compiles:
            at = "" if location is None else f" at {location.describe()}"
            logger.warning("%s", f"Finished tracing {name} in {seconds * 1e3:.1f} ms{at}: {cause}")
        warn_of_constants(name, constants)
        if config.debug_key_reuse:
            check_key_reuse(jaxpr)
        refs = StagedRefs(arguments, written, [Touched(*t) for t in touched]) if touched or any(arguments) else None
        staged = StagedFunction(jaxpr, constants, out.treedef, name, self._donated(args, kwargs), refs)
        if isinstance(answers, Assumptions):
            staged.assumptions = tuple(answers.assumed.values())
        if self._contract is not None:
            staged.jaxpr.memoize("contract", lambda: self._contract)
        staged.jaxpr.memoize("argument names", lambda: ("constant",) * len(constants) + tuple(paths))
        # A jaxpr with traced constants belongs to the trace around this call.
        cached = not any(isinstance(c, Tracer) for c in constants) and self._can_keep(static)
        cached = cached and all(ref.is_outside for ref, _ in touched)
        cached = cached and not (escaped and ref_arguments.has_backward_rules(jaxpr))
        self._cache.missed(key, cause, location, seconds, staged.jaxpr, cached)
        if proposal is not None:
            staged.guards, proposal.lasting = proposal.guards, cached
        elif cached:
            self._cache.keep(key, staged, LIMIT)
        return staged

    def _can_keep(self, static: Any) -> bool:
        """Return whether the staged function may be cached for equal static arguments."""
        return True

    # -- static and donated arguments ------------------------------------------------------------------------------

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """Split off static arguments; return dynamic positional and keyword arguments, and static ones with index or
        name.
        """
        indices = {i % len(args) if i < 0 and args else i for i in self._static_argnums}
        dynamic = tuple(a for i, a in enumerate(args) if i not in indices)
        static = tuple((i, type(a), a) for i, a in enumerate(args) if i in indices)
        named = tuple((k, type(v), v) for k, v in sorted(kwargs.items()) if k in self._static_argnames)
        rest = {k: v for k, v in kwargs.items() if k not in self._static_argnames}
        return dynamic, rest, (len(args), static, named)

    def _merged(self, dynamic: tuple[Any, ...], rest: dict[str, Any], static: Any) -> tuple[Any, Any]:
        """What `_split` has split, merged again."""
        count, positional, named = static
        held, others = {i: a for i, _, a in positional}, iter(dynamic)
        args = tuple(held[i] if i in held else next(others) for i in range(count))
        return args, {**rest, **{k: v for k, _, v in named}}

    def _dynamic_names(self, static: Any) -> list[str] | None:
        """The names of the positional arguments that are not static; None: they are the first."""
        names = parameter_names(self._function, static[0]) if static else None
        held = {index for index, _, _ in static[1]} if static else set()
        return None if names is None else [n for i, n in enumerate(names) if i not in held]

    def _with_static(self, static: Any) -> Callable[..., Any]:
        if not static:
            return self._traced_function

        def function(*dynamic: Any, **rest: Any) -> Any:
            args, kwargs = self._merged(dynamic, rest, static)
            return self._traced_function(*args, **kwargs)

        return wraps(self._function)(function)

    def _raise_unhashable(self, static: Any, error: TypeError) -> None:
        for key, kind, value in (*static[1], *static[2]) if static else ():
            try:
                hash(value)
            except TypeError:
                names = parameter_names(self._function, static[0]) or [str(i) for i in range(static[0])]
                name = key if isinstance(key, str) else names[key]
                raise UnhashableStaticArgumentError(
                    f"{self._transformation} of {name_of(self._function)}: static argument `{name}` is not hashable.",
                    received=f"{value!r} of type {kind.__name__}",
                    fix="pass a hashable value (a tuple for a list, a frozen dataclass), or make the argument dynamic",
                    at=user_line(),
                    jax="Non-hashable static arguments are not supported. An error occurred while trying to hash an "
                    f"object of type {type(value)}, {value}.",
                ) from None
        raise error

    def _donated(self, args: Any, kwargs: Any) -> tuple[bool, ...]:
        """Return a flag for each leaf, or () without donation.

        Indices in `donate_argnums` count all positional arguments, static ones included.
        """
        if not self._donate_argnums and not self._donate_argnames:
            return (False,) * 0
        dynamic = [i for i in range(len(args) + len(self._static_argnums)) if i not in self._static_argnums][
            : len(args)
        ]
        flags: list[bool] = []
        for index, a in zip(dynamic, args, strict=True):
            flags.extend([index in self._donate_argnums] * len(tree.leaves(a)))
        for k in sorted(kwargs):
            flags.extend([k in self._donate_argnames] * len(tree.leaves(kwargs[k])))
        return tuple(flags)

    # -- looking inside --------------------------------------------------------------------------------------------

    @boundary
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Stage for these arguments (or `ShapeDtypeStruct`s) without running."""
        if not self._simple:
            dynamic, rest, static = self._split(args, kwargs)
            dynamic, rest = with_structs((dynamic, rest))
            args, kwargs = self._merged(dynamic, rest, static)
        else:
            args, kwargs = with_structs((args, kwargs))
        staged, leaves = self._find(args, kwargs)
        dynamic = (args, kwargs) if self._simple else self._split(args, kwargs)[:2]
        static = () if self._simple else self._split(args, kwargs)[2]
        paths = argument_paths(self._function, *dynamic, self._dynamic_names(static))
        origin = Origin(name_of(self._function), staged, self._dynamic, paths, self._device)
        return Traced(leaves, staged.params, tree.structure(dynamic), staged.out_tree, staged.constants, origin)

    def _dynamic(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return (args, kwargs) if self._simple else self._split(args, kwargs)[:2]

    @boundary
    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Stage, ready to compile for these arguments."""
        return self.trace(*args, **kwargs).lower()

    @boundary
    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shapes and dtypes of the result without running."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Discard everything that was staged for this function."""
        self._cache.clear()
        self._recent = ()
        self._dispatchers.clear()

    def cache_size(self) -> int:
        """Return the number of staged signatures."""
        return len(self._cache)

    _cache_size = cache_size

    def cache_report(self) -> CacheReport:
        """Report every time this function was staged: why, at which line, and what tracing and compiling took."""
        return self._cache.report(name_of(self._function))

    __signature__ = _Signature()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {name_of(self._function)}>"
