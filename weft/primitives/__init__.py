"""Every primitive, one file a family; `weft.lax` is their public face."""
