"""Stages of a jitted function that can be held and inspected: traced, lowered, compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from weft.api.communication import Communication
from weft.api.flat import structure_differences
from weft.api.shardings import place_argument
from weft.api.stablehlo import lower_to_stablehlo
from weft.base import tree
from weft.base.dataclass import dataclass
from weft.base.dtypes import float0
from weft.base.errors import ArgumentError, InvalidInputTypeError, NotSupportedError
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import EVALUATION, context
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ArrayType, RefType, ShapeDtypeStruct, get_aval, is_value
from weft.primitives.control.call import jit as jit_primitive
from weft.runtime.device import default_device
from weft.runtime.evaluate import donate
from weft.runtime.execute import get_executable
from weft.runtime.held import HeldArray
from weft.runtime.spmd import SpmdProgram, find_mesh, run
from weft.sharding import Sharding, SingleDeviceSharding
from weft.sharding.device import Device
from weft.sharding.layout import Format, Layout
from weft.trace.refs import Ref, check_no_refs_twice, check_not_closed_over

Dynamic = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class ArgInfo:
    """Argument of a staged function: its type, and whether it is donated."""

    _aval: ArrayType
    donated: bool

    @property
    def aval(self) -> ArrayType:
        """Type."""
        return self._aval

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype


CompilerOptions = dict[str, str | bool]


@runtime_checkable
class Wrapped(Protocol):
    """Function that `jit` returned: it can be called, and inspected stage by stage."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        ...

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Stage it for these arguments without running."""
        ...

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Stage it for these arguments, ready to compile."""
        ...


class Origin(NamedTuple):
    """Facts of a jitted function that its traced stage needs."""

    name: str
    staged: Any
    """The `StagedFunction` of the signature."""
    dynamic: Dynamic
    paths: Sequence[str]
    """Names of the leaves of the arguments, for messages."""
    device: Device | None


class Traced:
    """Function staged for one signature.

    Args:
        meta_tys_flat: the leaves of the arguments: arrays, or `ShapeDtypeStruct`s in their place.
        params: the parameters of the call that it is in a jaxpr.
        in_tree: the tree of `(args, kwargs)`.
        out_tree: the tree of the result.
        consts: the arrays that it closes over.
        origin: facts of the jitted function.
    """

    def __init__(
        self,
        meta_tys_flat: Sequence[Any],
        params: dict[str, Any],
        in_tree: Any,
        out_tree: Any,
        consts: Sequence[Any],
        origin: Origin,
    ):
        self._paths, self._device = origin.paths, origin.device
        # Assumptions about symbolic sizes, to be checked where the sizes are known.
        self.assumptions: tuple[Any, ...] = origin.staged.assumptions
        # Context of the settings while it is compiled.
        self._settings: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._jaxpr, self._constants, self._params = params["jaxpr"], consts, params
        self._staged = staged = origin.staged
        self._operand_names: tuple[str, ...] = staged.operand_names
        self._out_types, self._result, self._refs = staged.out_types, staged.result, staged.refs
        self.in_tree, self.out_tree = in_tree, out_tree
        self.fun_name = origin.name
        self._dynamic = origin.dynamic
        self._shardings = [*map(committed_sharding, consts), *map(committed_sharding, meta_tys_flat)]

    @property
    def jaxpr(self) -> Jaxpr:
        """Staged jaxpr with its constants attached."""
        staged, count = self._jaxpr, len(self._constants)
        result: Jaxpr = staged.replace(
            constvars=staged.invars[:count], invars=staged.invars[count:], consts=self._constants
        )
        return result

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the result, in its tree."""
        return tree.unflatten(self.out_tree, [struct(t) for t in self._out_types])

    @property
    def out_avals(self) -> Any:
        """Types of the result, in its tree."""
        return tree.unflatten(self.out_tree, self._out_types)

    @property
    def _in_types(self) -> list[Any]:
        result: list[Any] = self._jaxpr.in_avals[len(self._constants) :]
        return result

    @property
    def in_avals(self) -> Any:
        """Types of the arguments, in the tree of `(args, kwargs)`."""
        return tree.unflatten(self.in_tree, self._leaf_types)

    @property
    def _leaf_types(self) -> list[Any]:
        """Types of the leaves of the arguments. Mutable arrays that the function closes over follow them."""
        return self._in_types[: self.in_tree.num_leaves]

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Indices of the leaves of the arguments that are donated."""
        donated = self._params.get("donated", ())[len(self._constants) :]
        return tuple(i for i, flag in enumerate(donated) if flag)

    @property
    def args_info(self) -> Any:
        """Types and donation of the arguments, in the tree of `(args, kwargs)`."""
        donated = self.donate_argnums
        return tree.unflatten(self.in_tree, [ArgInfo(t, n in donated) for n, t in enumerate(self._leaf_types)])

    def _partitioned(self) -> SpmdProgram | None:
        """Return the program for a mesh, or None if no argument is sharded over one and the function names none."""
        mesh = find_mesh(self._jaxpr, (), self._shardings, self._operand_names)
        if mesh is None:
            return None
        result: SpmdProgram | None = self._staged.compile_for_mesh([None] * len(self._shardings), mesh, self._shardings)
        return result

    def lower(self) -> Lowered:
        return Lowered(self)


class Stage:
    """Base of the stages after tracing. Values that are not passed are those of the traced function."""

    def __init__(
        self,
        traced: Traced,
        args_info: Any = None,
        out_tree: Any = None,
        no_kwargs: bool = False,
        in_types: Sequence[Any] | None = None,
        out_types: Sequence[Any] | None = None,
    ):
        self._traced = traced
        self.in_tree = traced.in_tree
        self.out_tree = traced.out_tree if out_tree is None else out_tree
        self._args_info, self._no_kwargs = args_info, no_kwargs
        self._in_types, self._out_types = in_types, out_types

    @property
    def jaxpr(self) -> Jaxpr:
        """Staged jaxpr."""
        return self._traced.jaxpr

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the result, in its tree."""
        types = self._traced._out_types if self._out_types is None else self._out_types
        return tree.unflatten(self.out_tree, [struct(t) for t in types])

    @property
    def in_avals(self) -> Any:
        """Types of the arguments, in the tree of `(args, kwargs)`."""
        return self._traced.in_avals if self._in_types is None else tree.unflatten(self.in_tree, self._in_types)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Indices of the leaves of the arguments that are donated."""
        return self._traced.donate_argnums

    @property
    def args_info(self) -> Any:
        """Types and donation of the arguments, in the tree of `(args, kwargs)`."""
        return self._traced.args_info if self._args_info is None else self._args_info


class Lowered(Stage):
    """Staged function that is ready to compile.

    `jit(f).lower(*args)` returns one. `as_text()` shows the program, `compile()` makes machine code, `cost_analysis()`
    counts operations and bytes.

    Args:
        lowering: what `jit(f).trace(...)` returned.
        args_info: types and donation of the arguments; by default those of tracing, as for all that follow.
        out_tree: the tree of the result.
        no_kwargs: whether the compiled function refuses arguments by name.
        in_types: types of the leaves of the arguments.
        out_types: types of the leaves of the result.

    >>> import weft
    >>> lowered = weft.jit(lambda x: x + 1.0).lower(1.0)
    >>> lowered.compile()(2.0)
    Array(3., dtype=float32, weak_type=True)
    """

    def __init__(
        self,
        lowering: Traced,
        args_info: Any = None,
        out_tree: Any = None,
        no_kwargs: bool = False,
        in_types: Sequence[Any] | None = None,
        out_types: Sequence[Any] | None = None,
    ):
        super().__init__(lowering, args_info, out_tree, no_kwargs, in_types, out_types)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """Return the input of a compiler.

        Args:
            dialect: "jaxpr", what Weft's compiler takes and the default, or "stablehlo", a module for others, such as
                XLA, whose text is `str(module)`.

        >>> import weft
        >>> print(weft.jit(lambda x: x + 1.0).lower(1.0).compiler_ir())
        { lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }
        """
        if dialect in (None, "jaxpr"):
            return self.jaxpr
        if dialect == "stablehlo":
            return lower_to_stablehlo(self._traced)
        what = "compiler_ir: dialect must be 'jaxpr', 'stablehlo' or None."
        fix = "compiler_ir(), which is a jaxpr; compile() holds every later form: stages, kernels, llvm, asm"
        raise ArgumentError(what, received=f"dialect {dialect!r}", fix=fix)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """Return the text of `compiler_ir`.

        Args:
            dialect: "jaxpr", the default, or "stablehlo".
            debug_info: accepted for JAX's programs; locations are not part of the text.

        >>> import weft
        >>> "stablehlo.add" in weft.jit(lambda x: x + 1.0).lower(1.0).as_text("stablehlo")
        True
        """
        return str(self.compiler_ir(dialect))

    def cost_analysis(self) -> dict[str, float]:
        """Return the operations and bytes of one run."""
        return self.compile().cost_analysis()

    def compile(self, compiler_options: Mapping[str, Any] | None = None) -> Compiled:
        """Compile to machine code for this signature."""
        check_compiler_options("compile", compiler_options)
        properties = (self._args_info, self.out_tree, self._no_kwargs, self._in_types, self._out_types)
        return Compiled(self._traced, (), *properties)


class Compiled(Stage):
    """Program for one signature: calling it with other types is an error, never a new compilation.

    Its intermediate forms can be inspected: `stages` after each pass, `fusions`, `program`, `kernels`, `llvm`, `asm`.
    For many devices these are the program of each device, and `communication` has its collectives.

    Args:
        executable: what `jit(f).trace(...)` returned.
        const_args: arrays in place of those that the function closes over; by default these.
        args_info, out_tree, no_kwargs, in_types, out_types: as for `Lowered`.
    """

    def __init__(
        self,
        executable: Traced,
        const_args: Sequence[Any] = (),
        args_info: Any = None,
        out_tree: Any = None,
        no_kwargs: bool = False,
        in_types: Sequence[Any] | None = None,
        out_types: Sequence[Any] | None = None,
    ):
        super().__init__(executable, args_info, out_tree, no_kwargs, in_types, out_types)
        traced, self._const_args = executable, tuple(const_args)
        with traced._settings():
            self._partitioned = traced._partitioned()
        if self._partitioned is not None:
            self._executable = self._partitioned.executable.executable
        else:
            self._executable = get_executable(traced._jaxpr, traced._params.get("donated", ()), self._device)

    @property
    def communication(self) -> Communication:
        """Collectives of the program: kind, axis, bytes, value, the user's line and the reason for each."""
        return Communication(() if self._partitioned is None else self._partitioned.communication)

    @property
    def _device(self) -> Device | None:
        """Device that the user named, or None."""
        named = [s.device for s in self._traced._shardings if isinstance(s, SingleDeviceSharding)]
        return self._traced._device or (named[0] if named else None)

    @property
    def input_shardings(self) -> Any:
        """Shardings of the arguments, in the tree of `(args, kwargs)`."""
        return tree.unflatten(self.in_tree, self._argument_shardings())

    @property
    def output_shardings(self) -> Any:
        """Shardings of the results, in their tree."""
        results = iter(self._partitioned.out_shardings if self._partitioned is not None else ())
        one = SingleDeviceSharding(self._device or default_device())
        found = [one if self._partitioned is None or is_empty(t) else next(results) for t in self._traced._out_types]
        return tree.unflatten(self.out_tree, found)

    @property
    def input_formats(self) -> Any:
        """Layouts and shardings of the arguments, in the tree of `(args, kwargs)`."""
        pairs = zip(self._traced._in_types, self._argument_shardings(), strict=True)
        return tree.unflatten(self.in_tree, [make_format(t, s) for t, s in pairs])

    @property
    def output_formats(self) -> Any:
        """Layouts and shardings of the results, in their tree."""
        shardings = tree.leaves(self.output_shardings)
        pairs = zip(self._traced._out_types, shardings, strict=True)
        return tree.unflatten(self.out_tree, [make_format(t, s) for t, s in pairs])

    def _argument_shardings(self) -> Sequence[Sharding]:
        count = len(self._traced._in_types)
        if self._partitioned is None:
            return [SingleDeviceSharding(self._device or default_device())] * count
        return self._partitioned.in_shardings[len(self._partitioned.in_shardings) - count :]

    @property
    def stages(self) -> dict[str, str]:
        """Jaxpr after each pass, by the pass's position and name."""
        stages = self._executable.compilation.stages
        return {f"{i:02d}_{stage.name}": stage.text for i, stage in enumerate(stages, 1)}

    @property
    def fusions(self) -> str:
        """Fused jaxpr, with the cost of each fusion and the reasons why equations were fused or not."""
        result: str = self._executable.inside.fusions()
        return result

    @property
    def program(self) -> str:
        """Steps of the program, with their memory."""
        result: str = self._executable.inside.program()
        return result

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by name, in the kernel language."""
        result: dict[str, str] = self._executable.inside.kernels()
        return result

    @property
    def llvm(self) -> str:
        """Kernels in LLVM IR."""
        result: str = self._executable.inside.llvm()
        return result

    @property
    def asm(self) -> str:
        """Kernels as assembly."""
        result: str = self._executable.inside.assembly()
        return result

    def verify(self) -> None:
        """Verify the jaxpr after each pass, the Program and its kernels; raise an `InternalError` or a `JaxprTypeError`
        if one is invalid. `enable_checks` does so for all programs."""
        self._executable.inside.verify()

    def as_text(self) -> str:
        """Return the steps and the kernels as text."""
        kernels = "\n\n".join(f"{name}\n{text}" for name, text in self.kernels.items())
        return f"{self.program}\n\n{kernels}\n"

    def memory_analysis(self) -> Any:
        """Return the bytes of arguments, results, temporaries and code."""
        return self._executable.inside.memory_analysis()

    def cost_analysis(self) -> dict[str, float]:
        """Return the operations and bytes of one run."""
        result: dict[str, float] = self._executable.inside.cost_analysis()
        return result

    def runtime_executable(self) -> Any:
        """Return the executable."""
        return self._executable

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program."""
        return self(*args, **kwargs)

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        traced = self._traced
        if self._no_kwargs and kwargs:
            raise NotSupportedError(
                "function was compiled by a transformation that does not support keyword arguments, but called with "
                f"keyword arguments: {', '.join(kwargs)}",
                fix="pass them by position",
            )
        dynamic = (args, kwargs)
        leaves, in_tree = tree.flatten(dynamic)
        if in_tree != self.in_tree:  # static arguments, which are fixed, may be passed too
            dynamic = traced._dynamic(args, kwargs)
            leaves, in_tree = tree.flatten(dynamic)
        if in_tree != self.in_tree:
            raise InvalidInputTypeError(
                f"{traced.fun_name}: Function compiled with input pytree does not match the input pytree it was called"
                " with.",
                received=structure_differences(self.in_tree, in_tree, ()),
                fix="call the jitted function, which compiles for new structures",
                at=user_line(),
            )
        refs, passed = traced._refs, leaves
        if refs is not None:
            check_no_refs_twice(leaves, traced.fun_name, lambda i: traced._paths[i])
            check_not_closed_over(leaves, refs.captured, traced.fun_name, lambda i: traced._paths[i])
            leaves = refs.operands(leaves, context.trace is EVALUATION)
        before = leaves  # types before resharding: the compiler may choose shardings that become part of types
        if self._partitioned is not None and context.trace is EVALUATION:
            name = f"compiled {traced.fun_name}"
            pairs = zip(leaves, self._argument_shardings(), traced._paths, strict=True)
            leaves = [place_argument(leaf, sharding, name, path) for leaf, sharding, path in pairs]
        for i, (leaf, aval) in enumerate(zip(leaves, traced._in_types, strict=True)):
            if not (get_aval(leaf).matches(aval) or get_aval(before[i]).matches(aval)):
                path = [p for p, _ in tree.leaves_with_path(dynamic)][i]
                by_name = path[0].idx
                where = f"kwargs{tree.keystr(path[1:])}" if by_name else f"args[{path[1].idx}]{tree.keystr(path[2:])}"
                raise InvalidInputTypeError(
                    f"{traced.fun_name}: Argument types differ from the types for which this computation was"
                    f" compiled, at {where}.",
                    received=f"{get_aval(leaf).short()} for {aval.short()}",
                    fix="call the jitted function, which compiles for new types, or convert the argument",
                    at=user_line(),
                    jax="Argument types differ from the types for which this computation was compiled. The "
                    "mismatches are:"
                    f"\nArgument '{traced._paths[i]}' compiled with {aval.str_short()} and called with "
                    f"{get_aval(leaf).str_short()}",
                )
        operands = (*(self._const_args or traced._constants), *leaves)
        if self._partitioned is not None and context.trace is EVALUATION:
            donated = traced._params.get("donated", ())
            give = (lambda: donate(operands, donated)) if donated else None
            results: Sequence[Any] = run(self._partitioned, operands, give)
        else:
            results = jit_primitive(*operands, **traced._params)
        if refs is not None:
            count = len(results) - refs.written_count
            refs.write_back(passed, results[count:])
            results = results[:count]
        result = traced._result(results)
        return result if self.out_tree is traced.out_tree else tree.unflatten(self.out_tree, tree.leaves(result))


def make_format(aval: Any, sharding: Sharding) -> Format:
    """Return the format of an array: its sharding, and the layout by rows that all arrays have."""
    return Format(Layout(tuple(range(len(aval.shape)))), sharding)


def committed_sharding(leaf: Any) -> Sharding | None:
    """Return the sharding of a committed argument; None for others."""
    if isinstance(leaf, ShapeDtypeStruct):
        return leaf.sharding
    return leaf.sharding if isinstance(leaf, HeldArray) and leaf.committed else None


def is_empty(aval: Any) -> bool:
    """Return whether a type has the empty dtype float0."""
    return isinstance(aval, ArrayType) and aval.dtype == float0


class CompilerOptionError(ArgumentError, RuntimeError):
    """Compiler option that does not exist. JAX raises a RuntimeError, when it compiles."""


# Options of XLA without prefix. They change how long compilation takes, not what a program computes.
_EFFORT_OPTIONS = frozenset(
    ("exec_time_optimization_effort", "memory_fitting_effort", "memory_fitting_level", "optimization_level")
)


def check_compiler_options(caller: str, options: Mapping[str, Any] | None) -> None:
    """Accept the options of XLA, which have no effect; raise an error for any other name.

    Settings of `weft.config` change what Weft's compiler does.
    """
    unknown = [name for name in options or () if not (str(name).startswith("xla_") or name in _EFFORT_OPTIONS)]
    if unknown:
        what = f"{caller}: the compiler has no options of this name."
        fix = "leave compiler_options out; weft.config holds what can be set"
        received = ", ".join(map(repr, unknown))
        raise CompilerOptionError(what, received=received, fix=fix, jax=f"No such compile option: {unknown[0]!r}")


def with_structs(args: Any) -> Any:
    """Replace leaves with a shape and a dtype that are no arrays, such as types, by `ShapeDtypeStruct`s."""

    def one(leaf: Any) -> Any:
        known = is_value(leaf) or not hasattr(leaf, "shape") or not hasattr(leaf, "dtype")
        weak = getattr(leaf, "weak_type", False)
        sharding = getattr(leaf, "explicit_sharding" if isinstance(leaf, ArrayType) else "sharding", None)
        sharding = sharding if isinstance(sharding, Sharding) else None
        if known:
            return leaf
        is_ref = isinstance(leaf, (Ref, RefType))
        return ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak, is_ref=is_ref)

    return tree.map(one, args)


def struct(aval: Any) -> ShapeDtypeStruct:
    """Return the `ShapeDtypeStruct` of a type."""
    assert isinstance(aval, ArrayType)
    return ShapeDtypeStruct.like(aval)
