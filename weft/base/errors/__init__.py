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
    ArgumentError as ArgumentError,
    ArgumentTypeError as ArgumentTypeError,
    AxisOutOfBoundsError as AxisOutOfBoundsError,
    DtypeMismatchError as DtypeMismatchError,
    ImmutableArrayError as ImmutableArrayError,
    InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    InvalidIndexError as InvalidIndexError,
    InvalidInputTypeError as InvalidInputTypeError,
    NarrowingOverflowError as NarrowingOverflowError,
    NotSupportedError as NotSupportedError,
    OutOfBoundsIndexError as OutOfBoundsIndexError,
    ShapeMismatchError as ShapeMismatchError,
    TypePromotionError as TypePromotionError,
)
from weft.base.errors.layout import InternalError as InternalError, WeftError as WeftError, message as message
from weft.base.errors.modules import (
    ImmutableCollectionError as ImmutableCollectionError,
    MissingRngError as MissingRngError,
    ModuleDefinitionError as ModuleDefinitionError,
    NameInUseError as NameInUseError,
    ParameterNotFoundError as ParameterNotFoundError,
    ParameterShapeError as ParameterShapeError,
    ScopeLeakError as ScopeLeakError,
    UnboundModuleError as UnboundModuleError,
)
from weft.base.errors.processes import (
    CheckpointWriteError as CheckpointWriteError,
    ProcessFailureError as ProcessFailureError,
    ProgramMismatchError as ProgramMismatchError,
)
from weft.base.errors.running import (
    CheckpointMismatchError as CheckpointMismatchError,
    DonatedArrayError as DonatedArrayError,
    FailedCheckError as FailedCheckError,
    FileFormatError as FileFormatError,
    IntegerDivisionError as IntegerDivisionError,
    JaxprSyntaxError as JaxprSyntaxError,
    JaxprTypeError as JaxprTypeError,
    JaxRuntimeError as JaxRuntimeError,
    KeyReuseError as KeyReuseError,
    NonFiniteValueError as NonFiniteValueError,
    OutOfMemoryError as OutOfMemoryError,
    UnhashableStaticArgumentError as UnhashableStaticArgumentError,
)
from weft.base.errors.sharding import CommunicationError as CommunicationError, ShardingTypeError as ShardingTypeError
from weft.base.errors.tracing import (
    ConcretizationTypeError as ConcretizationTypeError,
    JAXIndexError as JAXIndexError,
    JAXTypeError as JAXTypeError,
    NonConcreteBooleanIndexError as NonConcreteBooleanIndexError,
    TracedShapeError as TracedShapeError,
    TracerArrayConversionError as TracerArrayConversionError,
    TracerBoolConversionError as TracerBoolConversionError,
    TracerIntegerConversionError as TracerIntegerConversionError,
    UnexpectedTracerError as UnexpectedTracerError,
)
from weft.base.errors.transforms import (
    AxisSpecError as AxisSpecError,
    BranchMismatchError as BranchMismatchError,
    CarryMismatchError as CarryMismatchError,
    CustomRuleError as CustomRuleError,
    IntegerInputGradientError as IntegerInputGradientError,
    MissingRuleError as MissingRuleError,
    NonScalarGradientError as NonScalarGradientError,
    OrderedEffectError as OrderedEffectError,
    TangentMismatchError as TangentMismatchError,
    TreeMismatchError as TreeMismatchError,
    UnboundAxisError as UnboundAxisError,
)
