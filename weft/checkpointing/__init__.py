"""Saving and restoring training state: trees of arrays, on any mesh (`weft.checkpoint` is rematerialisation).

`save` and `restore` write and read one checkpoint, `CheckpointManager` those of a training, `ElasticManager` those of
one that is started again when a process fails. A checkpoint is a directory
of safetensors files and an index; docs/design/checkpointing.md describes it.
"""

from weft.base.publish import publish as _publish
from weft.checkpointing import orbax as orbax
from weft.checkpointing.elastic import ElasticManager as ElasticManager
from weft.checkpointing.manager import CheckpointManager as CheckpointManager
from weft.checkpointing.restoring import Metadata as Metadata, metadata as metadata, restore as restore
from weft.checkpointing.saving import save as save

_publish(__name__)
