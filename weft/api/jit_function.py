"""The function that `jit` returns: it reads a call, finds what was staged for its signature, and runs it.

`docs/design/jit.md` has the data, the flow and the invariants.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.api import ref_arguments
from weft.api.automatic import Proposal
from weft.api.cache_report import CacheReport
from weft.api.call import Call, Signature, StaticArguments, split_static
from weft.api.dispatch_table import DispatchTable
from weft.api.explain import log_miss, logger
from weft.api.flat import MISS, adopt, check_leaves, get_name, get_types, wraps
from weft.api.options import JitOptions
from weft.api.ref_arguments import StagedRefs
from weft.api.shardings import argument_shardings, place_argument, with_out_shardings
from weft.api.signatures import get_cache
from weft.api.staged import StagedFunction
from weft.api.stages import Lowered, Origin, Traced, with_structs
from weft.api.staging import stage_call
from weft.base.errors import message
from weft.base.lazy import lazy
from weft.base.settings import config, default_device
from weft.base.source import user_line, user_location
from weft.base.tracebacks import boundary, conceal
from weft.indexing.guards import Assumptions, current
from weft.ir.at_sizes import has_rules_for_symbols
from weft.ir.context import EVALUATION, context
from weft.ir.interpreter import replay
from weft.primitives.control.call import jit as jit_primitive
from weft.runtime import guards
from weft.runtime.array import ConcreteArray, put
from weft.runtime.device import HOME, Placement, get_placement
from weft.runtime.evaluate import run_call
from weft.runtime.execute import get_executable
from weft.runtime.execution_backend import execution_backend
from weft.runtime.placing import check_on_mesh, common_placement, used_arguments
from weft.runtime.sharded import ShardedArray
from weft.runtime.spmd import SpmdProgram
from weft.sharding.mesh import Mesh
from weft.trace.refs import Ref, check_no_refs_twice, check_not_closed_over
from weft.trace.tracer import Tracer

if TYPE_CHECKING:
    from weft.api import dispatch
else:
    dispatch = lazy("weft.api.dispatch")

# The call of a signature that generates a dispatcher for it.
CALLS_BEFORE_DISPATCH = 2
# Python limits the nesting of expressions, so deeper trees have no dispatcher.
DEEPEST_DISPATCH = 50

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

    def __init__(self, function: Callable[..., Any], options: JitOptions) -> None:
        adopt(self, function)
        self._function = function
        self._name = get_name(function)
        self._caller = f"{self._transformation} of {self._name}"  # in messages
        self._options = options = options.resolve(function, self._caller)
        self._has_static = options.has_static
        self._traced_function = function
        if options.out_shardings is not None and options.device is None:
            self._traced_function = wraps(function)(with_out_shardings(function, options.out_shardings, self._caller))
        self._cache = get_cache(function, options.cache_key)
        self._table = DispatchTable()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            recent = self._table.recent
            for dispatch in recent:
                result = dispatch(args, kwargs)
                if result is not MISS:
                    return result
            if recent:
                result = self._table.run(args, kwargs, recent)
                if result is not MISS:
                    return result
            return self._call(args, kwargs)
        except Exception as error:
            conceal(error)
            raise

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call without a dispatcher."""
        if config.disable_jit:
            return self._traced_function(*args, **kwargs)
        is_outermost = context.trace is EVALUATION
        staged, call = self._find(args, kwargs, automatic=is_outermost)
        if staged.refs is not None:
            return self._call_with_refs(staged.refs, staged, call)
        operands = (*staged.constants, *call.leaves)
        if not is_outermost:
            results = replay(staged.jaxpr, *operands) if self._options.inline else self._bind(staged, operands)
        elif self._options.device is not None:
            results = self._run_on_device(staged, call)
        else:
            where = self._find_place(staged, call, call.leaves, self._find_mesh(staged, operands))
            self._count(staged, call, where, args, kwargs)
            results = run_call(operands, staged.params, where)
        return staged.result(results)

    # -- running a staged function ---------------------------------------------------------------------------------

    def _find_mesh(self, staged: StagedFunction, operands: Sequence[Any]) -> Mesh | None:
        return staged.find_mesh(operands)

    def _find_place(
        self, staged: StagedFunction, call: Call, leaves: Sequence[Any], mesh: Mesh | None
    ) -> SpmdProgram | Placement:
        """Return where a call runs: the program for its mesh, or the placement of the results on one device."""
        used = used_arguments(staged.jaxpr)[len(staged.constants) :]
        name = lambda i: call.paths()[i]
        placement = common_placement(leaves, self._caller, name, used)
        if mesh is None:
            return placement
        if placement.committed:
            check_on_mesh(leaves, mesh, self._caller, name, used)
        return staged.compile_for_mesh((*staged.constants, *leaves), mesh)

    def _count(
        self,
        staged: StagedFunction,
        call: Call,
        where: SpmdProgram | Placement,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Count a call, and register a dispatcher if there were enough with this signature."""
        if config.profiling:  # profiled calls have dispatchers of their own
            staged.timed_calls += 1
        else:
            staged.calls += 1
        calls = staged.timed_calls if config.profiling else staged.calls
        if calls < CALLS_BEFORE_DISPATCH or staged.has_empty:
            return
        if not (config.debug_key_reuse or guards.are_on()):  # these check every call
            self._specialise(staged, call, where, args, kwargs)

    def _specialise(
        self,
        staged: StagedFunction,
        call: Call,
        where: SpmdProgram | Placement,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Register the dispatcher for calls like this one, generated at the first one."""
        placements = tuple(map(get_place, call.leaves))
        key = (config.call_key(), placements)  # a dispatcher is valid for these settings only
        if key not in staged.dispatchers:
            # Imported here since it loads the compiler, which programs that never jit do not need.

            found = None
            if max(call.in_tree.depth, staged.out_tree.depth) <= DEEPEST_DISPATCH:
                if isinstance(where, SpmdProgram):
                    found = dispatch.spmd_dispatcher(where, staged, call, placements)
                else:
                    executable = get_executable(staged.jaxpr, staged.donated, where.device)
                    found = dispatch.dispatcher(executable, staged, call, placements, where)
            staged.dispatchers[key] = found
        if (found := staged.dispatchers[key]) is not None:
            self._table.add(found, args, kwargs, is_timed=config.profiling)

    def _run_on_device(self, staged: StagedFunction, call: Call) -> Sequence[Any]:
        """Run on the device of the options, regardless of the devices that the arguments are committed to."""
        device = self._options.device
        assert device is not None
        placement = get_placement(device, True)
        uncommitted_there = get_placement(device, False)
        if guards.are_on():
            guards.check_call(self._name, call.leaves, device, with_scalars=True)
        copies = [put(leaf, uncommitted_there) if isinstance(leaf, ConcreteArray) else leaf for leaf in call.leaves]
        operands = (*staged.constants, *copies)
        with default_device(device):
            where = self._find_place(staged, call, copies, staged.find_mesh(operands))
            results = run_call(operands, staged.params, where)
        for leaf, copy, donated in zip(call.leaves, copies, staged.donated[len(staged.constants) :], strict=False):
            if donated and leaf is not copy:
                leaf._donate(user_location())
        return [put(r, placement) if isinstance(r, ConcreteArray) else r for r in results]

    def _bind(self, staged: StagedFunction, operands: Sequence[Any]) -> Sequence[Any]:
        """Bind the call as one `jit` equation of the active trace."""
        params = staged.params if context.trace is EVALUATION else staged.traced_params()
        results = context.trace.process(jit_primitive, operands, params)  # type: ignore[arg-type]
        if staged.contract is not None and not any(isinstance(r, Tracer) for r in results):
            # The trace had no part in the call and passed it on to the evaluator, which knows no contracts.
            mesh = staged.find_mesh(operands)
            if mesh is not None:
                staged.compile_for_mesh(operands, mesh)
        return results

    def _call_with_refs(self, refs: StagedRefs, staged: StagedFunction, call: Call) -> Any:
        """Call a staged function that reads or writes mutable arrays, and write their new values back."""
        check_not_closed_over(call.leaves, refs.captured, self._caller, lambda i: f"number {i}")
        alone = context.trace is EVALUATION
        operands = (*staged.constants, *refs.operands(call.leaves, alone))
        plain = alone and self._options.device is None
        results = self._run_with_refs(refs, staged, operands) if plain else self._bind(staged, operands)
        count = len(results) - refs.written_count
        refs.write_back(call.leaves, results[count:])
        return staged.result(results[:count])

    def _run_with_refs(self, refs: StagedRefs, staged: StagedFunction, operands: Sequence[Any]) -> Sequence[Any]:
        """Run the staged function as a jitted function of values, which has dispatchers of its own."""
        if refs.of_values is None:
            values = ref_arguments.function_of_values(staged.traced_params()["jaxpr"], staged.params["name"])
            donated = tuple(i for i, flag in enumerate(staged.donated) if flag)
            refs.of_values = JitFunction(values, JitOptions(donate_argnums=donated))
        result: Sequence[Any] = refs.of_values(*operands)
        return result

    # -- finding or staging it -------------------------------------------------------------------------------------

    def _split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], StaticArguments | tuple[()]]:
        """Return the dynamic positional and keyword arguments, and the static ones."""
        return split_static(self._options, args, kwargs) if self._has_static else (args, kwargs, ())

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Read a call: split off static arguments, flatten the others, and put them where `in_shardings` say."""
        call = Call(self._function, *self._split(args, kwargs))
        leaves = call.leaves
        call.has_refs = any(type(leaf) is Ref for leaf in leaves)
        try:
            call.types = ref_arguments.types_with_refs(leaves) if call.has_refs else get_types(leaves)
        except TypeError:
            arrays = [0 if isinstance(leaf, Ref) else leaf for leaf in leaves]
            check_leaves(self._function, self._transformation, arrays, call.args, call.kwargs, call.names())
            raise
        if call.has_refs:
            check_no_refs_twice(leaves, self._caller, lambda i: call.paths()[i])
        if self._options.in_shardings is not None:
            wanted = argument_shardings(self._options.in_shardings, call.args, call.kwargs, self._caller)
            call.leaves = [
                leaf if sharding is None else place_argument(leaf, sharding, self._caller, path)
                for leaf, sharding, path in zip(leaves, wanted, call.paths(), strict=True)
            ]
            call.types = get_types(call.leaves)
        return call

    def _find(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], automatic: bool = False
    ) -> tuple[StagedFunction, Call]:
        """Return the staged function of a call, staging it if the signature is new, and the call.

        `automatic`: sizes that differ between calls may become symbols.
        """
        call = self._read(args, kwargs)
        signature = Signature(call.in_tree, call.types, call.static, config.key(), context.axes_key())
        try:
            staged = self._cache.get(signature)
        except TypeError:
            if call.static:
                call.static.check_hashable(self._function, self._transformation)
            raise
        if staged is None:
            for watch in watchers:
                watch(self, args, kwargs)
            if automatic and not call.has_refs and self._can_be_automatic(call, signature):
                staged = self._stage_for_all_sizes(call, signature)
            if staged is None:
                staged = self._stage(call, signature)
        else:
            self._cache.touch(signature)
        if context.trace is not EVALUATION and has_rules_for_symbols(staged.jaxpr):
            traced = signature._replace(axes=(*signature.axes, "traced"))
            staged = self._cache.get(traced) or JitFunction._stage(self, call, traced)
        if staged.assumptions and isinstance(current.answers, Assumptions):
            current.answers.assumed |= {a.expression: a for a in staged.assumptions}
        return staged, call

    def _stage(self, call: Call, signature: Signature, proposal: Proposal | None = None) -> StagedFunction:
        """Stage the function for a signature, or for the symbolic sizes of a proposal, and cache the result."""
        # The cause of a symbolic signature is the signature of the call that proposed it.
        called = signature if proposal is None else signature.with_types(proposal.called)
        location, cause = user_location(), self._cache.explain_miss(self._name, called, call.paths())
        if config.no_tracing:
            what = f"{self._transformation} would trace {self._name}, but the setting no_tracing is on: {cause}."
            raise RuntimeError(message(what, fix="call it before for arguments of these types", at=user_line()))
        if config.explain_cache_misses:
            log_miss(cause, location)
        where = f"{self._name}, {self._transformation} at {user_line()}"
        staging = stage_call(
            self._traced_function, self._options, call, signature.types, proposal, self._name, where, location
        )
        staged, seconds = staging.staged, staging.seconds
        if config.log_compiles:
            at = "" if location is None else f" at {location.describe()}"
            logger.warning("%s", f"Finished tracing {self._name} in {seconds * 1e3:.1f} ms{at}: {cause}")
        self._cache.record_miss(signature, cause, location, seconds, staged.jaxpr, staging.is_reusable)
        if proposal is not None:
            staged.guards, proposal.lasting = proposal.guards, staging.is_reusable
        elif staging.is_reusable:
            self._cache.keep(signature, staged)
        return staged

    def _can_be_automatic(self, call: Call, signature: Signature) -> bool:
        """Return whether sizes of a call may become symbols: only on a device whose programs can have
        them, and without special options.
        """
        if config.symbolic_sizes != "auto" or type(self) is not JitFunction or signature.axes:
            return False
        if config.checks == "all":  # checks of indices compare with numbers
            return False
        options = self._options
        special = (options.contract, options.device, options.in_shardings, options.out_shardings, config.mesh)
        if any(option is not None for option in special):
            return False
        return all(
            type(leaf) is not ShardedArray and execution_backend(get_place(leaf).device).has_symbolic_sizes
            for leaf in call.leaves
        )

    def _stage_for_all_sizes(self, call: Call, signature: Signature) -> StagedFunction | None:
        """Stage the function for symbolic sizes and instantiate it at those of this call; None if each size has its
        own.
        """
        families, rest = self._cache.automatic, signature.without_types
        if (found := families.find(rest, call.types)) is not None:
            return self._instantiate(signature, found[0].staged, found[1])
        proposal = families.propose(rest, call.types, call.paths)
        if proposal is None:
            return None
        try:
            staged = self._stage(call, signature.with_types(proposal.types), proposal)
            earlier = lambda types: self._cache.get(signature.with_types(types))
            proposal.compare(staged, earlier, lambda: self._stage(call, signature))
        except Exception as error:  # an error of the function itself is raised again for these sizes
            families.refuse(rest, proposal, self._name, error)
            return None
        families.add(rest, proposal, self._name, staged)
        return self._instantiate(signature, staged, proposal.sizes)

    def _instantiate(self, signature: Signature, staged: StagedFunction, sizes: dict[Any, int]) -> StagedFunction:
        """Instantiate a symbolically staged function at concrete sizes, and cache the result."""
        instance = staged.at_sizes(sizes)
        self._cache.keep_instance(signature, instance)
        return instance

    # -- stages, caches and Python's protocols ---------------------------------------------------------------------

    @boundary
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Stage for these arguments (or `ShapeDtypeStruct`s) without running."""
        dynamic, rest, static = self._split(args, kwargs)
        args, kwargs = with_structs((dynamic, rest))
        if static:
            args, kwargs = static.merge(args, kwargs)
        staged, call = self._find(args, kwargs)
        origin = Origin(self._name, staged, self._dynamic, call.paths(), self._options.device)
        return Traced(call.leaves, staged.params, call.in_tree, staged.out_tree, staged.constants, origin)

    def _dynamic(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return self._split(args, kwargs)[:2]

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
        self._table.clear()

    def cache_size(self) -> int:
        """Return the number of staged signatures."""
        return len(self._cache)

    _cache_size = cache_size

    def cache_report(self) -> CacheReport:
        """Report every time this function was staged: why, at which line, and what tracing and compiling took."""
        return self._cache.report(self._name)

    __signature__ = _Signature()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {get_name(self._function)}>"


def get_place(leaf: Any) -> Any:
    """Return the sharding of an argument that is sharded, else its placement."""
    if type(leaf) is ShardedArray:
        return leaf.sharding
    return leaf._placement if isinstance(leaf, ConcreteArray) else HOME
