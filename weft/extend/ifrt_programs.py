"""`jax.extend.ifrt_programs`: programs in the formats of another runtime. Weft has none, so the module is empty; it
exists for libraries that import it unconditionally."""

from weft.base.publish import publish as _publish

_publish(__name__)
