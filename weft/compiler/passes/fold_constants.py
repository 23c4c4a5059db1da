"""Constant folding: evaluate equations whose operands are known at compile time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.settings import enable_x64
from weft.compiler.rewrite import everywhere, make_literal, new_equation, rename_operands, resolve
from weft.ir.context import EVALUATION, active
from weft.ir.inline import Constants, collect_constants, copy_equations
from weft.ir.interpreter import run_equation, storage_array
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.nans import allow_nans
from weft.ir.primitive import lookup
from weft.ir.types import ArrayType, array_type
from weft.primitives.movement.shape import broadcast_in_dim

# Larger results are computed at run time: constants take memory, and compile time.
LARGEST = 64


@everywhere
def fold_constants(jaxpr: Jaxpr) -> Jaxpr:
    """Evaluate equations on literals and small constants, and choose branches by a known index.

    Needs: the canonical form. Keeps: it. Effects and random keys are left alone.
    """
    return ConstantFolder(jaxpr).run()


class ConstantFolder:
    """The state of the pass over one jaxpr: `known` has the arrays of small constants, `uniform` the literal of each
    value that is the broadcast of one."""

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr
        self.known: dict[Any, np.ndarray] = {}
        self.uniform: dict[Any, Literal] = {}
        self.renamed: dict[Any, Atom] = {}
        self.equations: list[Equation] = []
        self.constants: Constants = collect_constants(jaxpr)
        for var, value in zip(jaxpr.constvars, jaxpr.consts, strict=True):
            if is_small(var):
                self.known[var] = storage_array(value)

    def run(self) -> Jaxpr:
        todo = list(reversed(self.jaxpr.eqns))
        while todo:
            equation = todo.pop()
            if self.renamed:
                equation = rename_operands(equation, self.renamed)
            if equation.primitive.higher_order and has_literal_index(equation):
                todo.extend(reversed(self.open_branch(equation)))
            elif not self.evaluate(equation):
                self.equations.append(equation)
                if equation.primitive is broadcast_in_dim and type(equation.invars[0]) is Literal:
                    self.uniform[equation.outvars[0]] = equation.invars[0]
        if not self.renamed:
            return self.jaxpr
        return self.jaxpr.replace(
            constvars=[v for v, _ in self.constants.values()],
            consts=[c for _, c in self.constants.values()],
            eqns=self.equations,
            outvars=[resolve(a, self.renamed) for a in self.jaxpr.outvars],
        )

    def open_branch(self, equation: Equation) -> list[Equation]:
        """Return copies of the equations of the branch that a literal selects."""
        index, *operands = equation.invars
        primitive: Any = equation.primitive
        branch = primitive.chosen(int(index.val), equation.params)  # type: ignore[union-attr]
        opened: list[Equation] = []
        results = copy_equations(branch, equation, operands, opened, self.constants)
        self.renamed.update(zip(equation.outvars, results, strict=True))
        return opened

    def evaluate(self, equation: Equation) -> bool:
        """Replace an equation by its value if that is known and small, and return whether it was."""
        invars = equation.invars
        for atom in invars:
            if type(atom) is Var and atom not in self.known and atom not in self.uniform:
                return False
        primitive = equation.primitive
        if not invars or not primitive.foldable or equation.effects or not is_exact(equation):
            return False
        if not is_numeric(equation.outvars[0]):
            return False
        if primitive.pointwise and all(type(a) is Literal or a in self.uniform for a in invars):
            values = compute_values(equation, [a.val if type(a) is Literal else self.uniform[a].val for a in invars])
        elif all(is_small(a) for a in (*invars, equation.outvars[0])):
            values = compute_values(equation, [self.array(a) for a in invars])
        else:
            return False
        for var, value in zip(equation.outvars, values, strict=True):
            self.define(equation, var, value)
        return True

    def array(self, atom: Atom) -> Any:
        """Return the value of a known operand as an array."""
        if type(atom) is Literal:
            return atom.val
        found = self.known.get(atom)
        return np.full(atom.aval.shape, self.uniform[atom].val) if found is None else found  # type: ignore[attr-defined]

    def define(self, equation: Equation, var: Var, value: np.ndarray) -> None:
        """Replace a result of an equation by its value: a literal, a broadcast of one, or a constant."""
        aval: Any = var.aval
        if not value.shape:
            scalar = make_literal(value, aval.dtype)
            if not aval.shape:
                self.renamed[var] = scalar
                return
            params = {"shape": aval.shape, "broadcast_dimensions": ()}
            broadcast = new_equation(lookup("broadcast_in_dim"), [scalar], params, equation)
            self.equations.append(broadcast)
            self.renamed[var] = broadcast.outvars[0]
            self.uniform[broadcast.outvars[0]] = scalar
            return
        constant = Var(array_type(aval.shape, aval.dtype))
        self.constants[id(value)] = (constant, value)
        self.known[constant] = value
        self.renamed[var] = constant


def has_literal_index(equation: Equation) -> bool:
    """Return whether a literal selects the branch that an equation runs."""
    primitive: Any = equation.primitive
    return primitive.exclusive and type(equation.invars[0]) is Literal


def is_numeric(atom: Atom) -> bool:
    """Return whether a value is an array of numbers: not of keys, and not a tape."""
    return (
        isinstance(atom.aval, ArrayType) and isinstance(atom.aval.dtype, np.dtype) and atom.aval.dtype != dtypes.float0
    )


def is_small(atom: Atom) -> bool:
    """Return whether a value is an array of numbers that is small enough for a constant."""
    if not is_numeric(atom):
        return False
    shape = atom.aval.shape  # type: ignore[attr-defined]
    return all(type(d) is int for d in shape) and math.prod(shape) <= LARGEST


def is_exact(equation: Equation) -> bool:
    """Return whether an equation has the same bits outside of its kernel: elementwise operations do, and those that
    NumPy computes exactly. Sums do not: their order belongs to a kernel."""
    if equation.primitive.pointwise:
        return True
    return equation.primitive.exact([a.aval for a in equation.invars], equation.params)


def compute_values(equation: Equation, operands: list[Any]) -> list[np.ndarray]:
    """Compute the values of an equation with the bits of compiled code, in memory of their own."""
    primitive, params = equation.primitive, equation.params
    if primitive.exact([a.aval for a in equation.invars], params):
        with np.errstate(all="ignore"):
            values = [np.array(result) for result in run_equation(equation, operands)]
    else:
        # Programs compute in doubles where their types say so, whatever `enable_x64` is outside of them.
        with active(EVALUATION), allow_nans(), enable_x64(True):
            arrays = [EVALUATION.lift(np.asarray(a)) for a in operands]
            values = [np.array(storage_array(result)) for result in EVALUATION.process(primitive, arrays, params)]
    for value in values:
        value.flags.writeable = False
    return values
