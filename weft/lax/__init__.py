"""The primitives' public face, with JAX's names and signatures: what `weft.numpy` is written with."""

# Each block belongs to one file; names are listed explicitly.
