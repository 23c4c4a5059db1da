"""The errors that Weft raises: one class for each kind of mistake, documented by its docstring.

There are two kinds of error, and two general classes:

* a mistake in the user's program is a `WeftError` that is also the builtin exception a Python programmer expects
  (`TypeError`, `IndexError`, ...), so that `except TypeError` keeps working; where JAX has a class for the mistake, the
  name and the builtin base are JAX's;
* a bug of Weft is an `InternalError`, which is not a `WeftError`, so that the two are never confused;
* an invalid argument that needs no class of its own is an `ArgumentError` (a `ValueError`) or an `ArgumentTypeError`
  (a `TypeError`).

Add a class when the cause is not obvious from the line that failed. Its name says what is wrong. Its docstring, from
which the page in `docs/errors` is generated, has a sentence that names the cause, a paragraph, an example under
`Wrong::` that raises the error and one under `Right::` that does not. The tests run both.

    raise ShapeMismatchError(
        "add needs equal shapes, or sizes of 1 where they differ.",
        at=user_line(),
        received="f32[3] and f32[4]",
        fix="x[:, None] + y   to add every pair",
    )
"""

from weft.base.errors.arrays import (
    ArgumentError,
    ArgumentTypeError,
    AxisOutOfBoundsError,
    DtypeMismatchError,
    ImmutableArrayError,
    InconclusiveDimensionOperation,
    InvalidIndexError,
    InvalidInputTypeError,
    NarrowingOverflowError,
    NotSupportedError,
    OutOfBoundsIndexError,
    ShapeMismatchError,
    TypePromotionError,
)
from weft.base.errors.layout import (
    InternalError,
    WeftError,
    message,
)
from weft.base.errors.modules import (
    ImmutableCollectionError,
    MissingRngError,
    ModuleDefinitionError,
    NameInUseError,
    ParameterNotFoundError,
    ParameterShapeError,
    ScopeLeakError,
    UnboundModuleError,
)
from weft.base.errors.processes import ProcessFailureError, ProgramMismatchError
from weft.base.errors.running import (
    CheckpointMismatchError,
    DonatedArrayError,
    FailedCheckError,
    FileFormatError,
    IntegerDivisionError,
    JaxprSyntaxError,
    JaxprTypeError,
    JaxRuntimeError,
    KeyReuseError,
    NonFiniteValueError,
    OutOfMemoryError,
    UnhashableStaticArgumentError,
)
from weft.base.errors.sharding import CommunicationError, ShardingTypeError
from weft.base.errors.tracing import (
    ConcretizationTypeError,
    JAXIndexError,
    JAXTypeError,
    NonConcreteBooleanIndexError,
    TracedShapeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from weft.base.errors.transforms import (
    AxisSpecError,
    BranchMismatchError,
    CarryMismatchError,
    CustomRuleError,
    IntegerInputGradientError,
    MissingRuleError,
    NonScalarGradientError,
    OrderedEffectError,
    TangentMismatchError,
    TreeMismatchError,
    UnboundAxisError,
)

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AxisOutOfBoundsError",
    "AxisSpecError",
    "BranchMismatchError",
    "CarryMismatchError",
    "CheckpointMismatchError",
    "CommunicationError",
    "ConcretizationTypeError",
    "CustomRuleError",
    "DonatedArrayError",
    "DtypeMismatchError",
    "FailedCheckError",
    "FileFormatError",
    "ImmutableArrayError",
    "ImmutableCollectionError",
    "InconclusiveDimensionOperation",
    "IntegerDivisionError",
    "IntegerInputGradientError",
    "InternalError",
    "InvalidIndexError",
    "InvalidInputTypeError",
    "JAXIndexError",
    "JAXTypeError",
    "JaxRuntimeError",
    "JaxprSyntaxError",
    "JaxprTypeError",
    "KeyReuseError",
    "MissingRngError",
    "MissingRuleError",
    "ModuleDefinitionError",
    "NameInUseError",
    "NarrowingOverflowError",
    "NonConcreteBooleanIndexError",
    "NonFiniteValueError",
    "NonScalarGradientError",
    "NotSupportedError",
    "OrderedEffectError",
    "OutOfBoundsIndexError",
    "OutOfMemoryError",
    "ParameterNotFoundError",
    "ParameterShapeError",
    "ProcessFailureError",
    "ProgramMismatchError",
    "ScopeLeakError",
    "ShapeMismatchError",
    "ShardingTypeError",
    "TangentMismatchError",
    "TracedShapeError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TreeMismatchError",
    "TypePromotionError",
    "UnboundAxisError",
    "UnboundModuleError",
    "UnexpectedTracerError",
    "UnhashableStaticArgumentError",
    "WeftError",
    "message",
]
