"""The rules of a primitive by concern; `weft.ir.primitive.Primitive` inherits them all."""
