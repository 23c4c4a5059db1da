"""Functions staged for types, with symbolic sizes where wanted, stored as files and called elsewhere.

`docs/design/export.md` describes the file and what is promised of it.
"""

from weft.base.publish import publish as _publish
from weft.export.exported import DisabledSafetyCheck, Exported, default_export_platform, deserialize, export
from weft.export.file import VERSION as maximum_supported_calling_convention_version
from weft.export.symbolic import SymbolicScope, is_symbolic_dim, symbolic_args_specs, symbolic_shape
from weft.export.trees import register_namedtuple_serialization, register_pytree_node_serialization

__all__ = [
    "DisabledSafetyCheck",
    "Exported",
    "SymbolicScope",
    "default_export_platform",
    "deserialize",
    "export",
    "is_symbolic_dim",
    "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
    "symbolic_args_specs",
    "symbolic_shape",
]

minimum_supported_calling_convention_version = 1

_publish(__name__)
