"""Functions staged for types, with symbolic sizes where wanted, stored as files and called elsewhere.

`docs/design/export.md` describes the file and what is promised of it.
"""

from weft.base.publish import publish as _publish
from weft.export.exported import (
    DisabledSafetyCheck as DisabledSafetyCheck,
    Exported as Exported,
    default_export_platform as default_export_platform,
    deserialize as deserialize,
    export as export,
)
from weft.export.file import VERSION as _VERSION
from weft.export.libraries.library import Library as Library, library as library
from weft.export.libraries.load import load as load
from weft.export.onnx.model import OnnxModel as OnnxModel, onnx as onnx
from weft.export.symbolic import (
    SymbolicScope as SymbolicScope,
    is_symbolic_dim as is_symbolic_dim,
    symbolic_args_specs as symbolic_args_specs,
    symbolic_shape as symbolic_shape,
)
from weft.export.trees import (
    register_namedtuple_serialization as register_namedtuple_serialization,
    register_pytree_node_serialization as register_pytree_node_serialization,
)

maximum_supported_calling_convention_version = _VERSION

minimum_supported_calling_convention_version = 1

_publish(__name__)
