"""Typed builder of LLVM text: every instruction checks the types of its operands."""

from weft.compiler.target.llvm.function import Function as Function, Loop as Loop
from weft.compiler.target.llvm.module import Module as Module, Parameter as Parameter
from weft.compiler.target.llvm.types import (
    Type as Type,
    bfloat as bfloat,
    double as double,
    float_ as float_,
    half as half,
    i1 as i1,
    i8 as i8,
    i16 as i16,
    i32 as i32,
    i64 as i64,
    i128 as i128,
    integer as integer,
    pointer as pointer,
    ptr as ptr,
    structure as structure,
    vector as vector,
    void as void,
)
from weft.compiler.target.llvm.values import (
    Value as Value,
    constant as constant,
    constant_vector as constant_vector,
    zero as zero,
)
