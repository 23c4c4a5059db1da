"""The errors Weft raises, one class for each mistake; each class docstring is its page, which `explain` prints."""

import difflib
import inspect

from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    AxisOutOfBoundsError,
    AxisSpecError,
    BranchMismatchError,
    CarryMismatchError,
    CheckpointMismatchError,
    CommunicationError,
    ConcretizationTypeError,
    CustomRuleError,
    DonatedArrayError,
    DtypeMismatchError,
    FailedCheckError,
    FileFormatError,
    ImmutableArrayError,
    ImmutableCollectionError,
    InconclusiveDimensionOperation,
    IntegerDivisionError,
    IntegerInputGradientError,
    InternalError,
    InvalidIndexError,
    InvalidInputTypeError,
    JAXIndexError,
    JaxprSyntaxError,
    JaxprTypeError,
    JaxRuntimeError,
    JAXTypeError,
    KeyReuseError,
    MissingRngError,
    MissingRuleError,
    ModuleDefinitionError,
    NameInUseError,
    NarrowingOverflowError,
    NonConcreteBooleanIndexError,
    NonFiniteValueError,
    NonScalarGradientError,
    NotSupportedError,
    OrderedEffectError,
    OutOfBoundsIndexError,
    OutOfMemoryError,
    ParameterNotFoundError,
    ParameterShapeError,
    ProcessFailureError,
    ProgramMismatchError,
    ScopeLeakError,
    ShapeMismatchError,
    ShardingTypeError,
    TangentMismatchError,
    TracedShapeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TreeMismatchError,
    TypePromotionError,
    UnboundAxisError,
    UnboundModuleError,
    UnexpectedTracerError,
    UnhashableStaticArgumentError,
    WeftError,
)
from weft.base.publish import publish, suggest
from weft.base.source import user_line
from weft.base.tracebacks import UnfilteredStackTrace, boundary, conceal

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
    "UnfilteredStackTrace",
    "UnhashableStaticArgumentError",
    "WeftError",
    "boundary",
    "conceal",
    "explain",
    "publish",
    "suggest",
    "user_line",
]


def explain(error: type[BaseException] | BaseException | str) -> None:
    """Print the page of an error class, of an error that was caught, or of a class by name: the cause, code that
    raises it and code that does not.

    `weft.errors.explain("ShapeMismatchError")`
    """
    kind = _class_of(error)
    bases = [base.__name__ for base in kind.__mro__[1:] if base.__module__ == "builtins" and base is not object]
    print(f"{kind.__name__} (caught by `except {bases[0]}` too)\n\n{inspect.getdoc(kind)}")


def _class_of(error: object) -> type[BaseException]:
    if isinstance(error, type) and issubclass(error, BaseException):
        return error
    if isinstance(error, BaseException):
        return type(error)
    known = {name: kind for name, kind in globals().items() if isinstance(kind, type) and name in __all__}
    if isinstance(error, str) and error in known:
        return known[error]
    near = difflib.get_close_matches(str(error), known, n=1, cutoff=0.5)
    raise ArgumentError(
        "explain takes an error of Weft: its class, the class's name, or one that was caught.",
        received=repr(error),
        fix=f"weft.errors.explain({near[0]!r})" if near else "weft.errors.explain('ShapeMismatchError')",
    )


publish(__name__)
