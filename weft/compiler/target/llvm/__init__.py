"""A small typed builder that appends LLVM text; every instruction checks the types of its operands."""

from weft.compiler.target.llvm.function import Function, Loop
from weft.compiler.target.llvm.module import Module, Parameter
from weft.compiler.target.llvm.types import (
    Type,
    bfloat,
    double,
    float_,
    half,
    i1,
    i8,
    i16,
    i32,
    i64,
    i128,
    integer,
    pointer,
    ptr,
    structure,
    vector,
    void,
)
from weft.compiler.target.llvm.values import Value, constant, constant_vector, zero

__all__ = [
    "Function", "Loop", "Module", "Parameter", "Type", "Value", "constant", "constant_vector", "double", "float_",
    "bfloat", "half", "i1", "i8", "i16", "i32", "i64", "i128", "integer", "pointer", "ptr", "structure", "vector",
    "void", "zero",
]  # fmt: skip
