"""Solvers that are differentiated by the equations their results satisfy: `custom_linear_solve` and `custom_root`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.api.custom import custom_jvp, is_running
from weft.api.custom_rules import zero_from_primal
from weft.api.differentiate import jvp, linear_transpose
from weft.base import tree
from weft.base.errors import TreeMismatchError
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import EVALUATION, context
from weft.ir.interpreter import replay
from weft.ir.types import get_aval
from weft.ir.varying import cast_to_state
from weft.lax.bodies import trace_body
from weft.lax.body_types import merge_types
from weft.lax.control_flow import flatten_argument
from weft.lax.elementwise import stop_gradient
from weft.primitives.control.call import jit as jit_primitive
from weft.primitives.control.implicit import Counts, custom_linear_solve as solve_primitive


@boundary
def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    transpose_solve: Callable[[Callable[[Any], Any], Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Solve `matvec(x) = b` by `solve(matvec, b)`, which may be any iteration: it is not differentiated itself.

    Reverse mode solves the transposed system with `transpose_solve(vecmat, b)`, or with `solve` if the operator is
    symmetric. With `has_aux`, `solve` returns (x, auxiliary).
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, treedef = flatten_argument(b, "lax.custom_linear_solve", "b")
    types = [get_aval(leaf) for leaf in leaves]
    one = tree.treedef_tuple([treedef])

    def stage_function(function: Callable[[Any], Any], word: str, auxiliary: bool = False) -> Any:
        jaxpr, constants, out_tree, _ = trace_body(function, one, types, f"the {word} of lax.custom_linear_solve,")
        found = tree.treedef_children(out_tree)[0] if auxiliary else out_tree
        if found != treedef:
            raise TreeMismatchError(
                f"lax.custom_linear_solve: {word} must return a value in the structure of b.",
                received=f"{found} for {treedef}",
                at=user_line(),
            )
        return jaxpr, constants, out_tree

    operator, operator_constants, _ = stage_function(matvec, "matvec")
    while True:  # results that the operator makes vary along manual axes vary in the system
        wider = [
            cast_to_state(x, merge_types(get_aval(x), v.aval)) for x, v in zip(leaves, operator.outvars, strict=True)
        ]
        if [get_aval(x) for x in wider] == types:
            break
        leaves, types = wider, [get_aval(x) for x in wider]
        b = tree.unflatten(treedef, leaves)
        operator, operator_constants, _ = stage_function(matvec, "matvec")
    solver, solver_constants, out_tree = stage_function(lambda right: solve(matvec, right), "solve", has_aux)
    transposed = transposed_solver = None
    transposed_constants: list[Any] = []
    transposed_solver_constants: list[Any] = []
    if transpose_solve is not None:
        solve_transposed = transpose_solve

        def vecmat(right: Any) -> Any:
            return matvec(right) if symmetric else linear_transpose(matvec, b)(right)[0]

        transposed, transposed_constants, _ = stage_function(vecmat, "transposed matvec")
        transposed_solver, transposed_solver_constants, _ = stage_function(
            lambda right: solve_transposed(vecmat, right), "transpose_solve", has_aux
        )
    results = solve_primitive(
        *operator_constants,
        *solver_constants,
        *transposed_constants,
        *transposed_solver_constants,
        *leaves,
        matvec=operator,
        solve=solver,
        vecmat=transposed,
        transpose_solve=transposed_solver,
        counts=Counts(
            len(operator_constants), len(solver_constants), len(transposed_constants), len(transposed_solver_constants)
        ),
    )
    return tree.unflatten(out_tree, results)


@boundary
def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    tangent_solve: Callable[[Callable[[Any], Any], Any], Any],
    has_aux: bool = False,
) -> Any:
    """Find x with `f(x) = 0` by `solve(f, initial_guess)`, differentiated by the implicit function theorem.

    `tangent_solve(g, y)` solves the linear system `g(x) = y`. With `has_aux`, `solve` returns (x, auxiliary).
    """
    leaves, treedef = flatten_argument(initial_guess, "lax.custom_root", "initial_guess")
    one = tree.treedef_tuple([treedef])
    jaxpr, constants, out_tree, _ = trace_body(
        f, one, [get_aval(x) for x in leaves], "the function of lax.custom_root,"
    )
    if out_tree != treedef:
        raise TreeMismatchError(
            "lax.custom_root: f must return a value in the structure of initial_guess.",
            received=f"{out_tree} for {treedef}",
            at=user_line(),
        )

    def residual(parameters: list[Any], x: Any) -> Any:
        return tree.unflatten(treedef, replay(jaxpr, *parameters, *tree.leaves(x)))

    fixed = stop_gradient(constants)
    # The solver may close over differentiated values: its result is a constant, and the rule defines its derivative.
    solved = _run_solver(lambda guess: solve(lambda x: residual(fixed, x), guess), stop_gradient(initial_guess))

    def derivative(parameters: list[Any], x: Any) -> Callable[[Any], Any]:
        return lambda v: jvp(lambda y: residual(parameters, y), (x,), (v,))[1]

    def transposed(parameters: list[Any], x: Any) -> Callable[[Any], Any]:
        return lambda v: linear_transpose(derivative(parameters, x), x)(v)[0]

    # The rule runs below the transformations that are active now, so `tangent_solve`'s closed-over values are operands.
    x = solved[0] if has_aux else solved
    pairs = [_close_solver(tangent_solve, operator, constants, x) for operator in (derivative, transposed)]
    solvers, closed = [solver for solver, _ in pairs], [values for _, values in pairs]

    @custom_jvp
    def root(parameters: list[Any], closed: Any, solved: Any) -> Any:
        return solved

    def rule(primals: Any, tangents: Any) -> Any:
        parameters, closed, solved = primals
        result = root(parameters, closed, solved)
        x = result[0] if has_aux else result
        _, change = jvp(lambda p: residual(p, x), (parameters,), (tangents[0],))
        forward, backward = (
            lambda _, y, solver=solver, values=values: solver(values, parameters, x, y)
            for solver, values in zip(solvers, closed, strict=True)
        )
        right = tree.map(lambda t: -t, change)
        x_dot = custom_linear_solve(derivative(parameters, x), right, forward, backward)
        if not has_aux:
            return result, x_dot
        return result, (x_dot, tree.map(zero_from_primal, result[1]))

    root.defjvp(rule)
    return root(constants, stop_gradient(closed), solved)


Operator = Callable[[list[Any], Any], Callable[[Any], Any]]


def _close_solver(
    tangent_solve: Callable[..., Any], operator: Operator, parameters: list[Any], x: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """Return `tangent_solve` of an operator with its closed-over values as explicit arguments, and these values.

    The returned function takes the closed-over values, the operator's parameters, the root and the right-hand side.
    """

    def solve(parameters: list[Any], x: Any, right: Any) -> Any:
        return tangent_solve(operator(parameters, x), right)

    if context.trace is EVALUATION:  # nothing is differentiated
        return lambda values, *operands: solve(*operands), []
    leaves, treedef = tree.flatten((parameters, x, x))
    types = [get_aval(leaf) for leaf in leaves]
    jaxpr, values, out_tree, _ = trace_body(solve, treedef, types, "the tangent_solve of lax.custom_root,")
    return lambda values, *operands: tree.unflatten(out_tree, replay(jaxpr, *values, *tree.leaves(operands))), values


def _run_solver(solver: Callable[[Any], Any], guess: Any) -> Any:
    """Run a solver and return its result as a constant for differentiation.

    On known values it runs as plain Python; else it is staged, so that no transformation looks inside.
    """
    if is_running(context.trace):
        return stop_gradient(solver(guess))
    leaves, treedef = tree.flatten(guess)
    types = [get_aval(x) for x in leaves]
    solve_jaxpr, constants, out_tree, _ = trace_body(
        solver, tree.treedef_tuple([treedef]), types, "the solver of lax.custom_root,"
    )
    return tree.unflatten(out_tree, jit_primitive(*stop_gradient(constants), *leaves, jaxpr=solve_jaxpr, name="solve"))
