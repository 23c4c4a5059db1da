"""`jax.extend.ifrt_programs`: programs in the formats of another runtime. There are none here, and the module has no
names; libraries import it before they ask what it has."""

from weft.base.publish import publish as _publish

_publish(__name__)
