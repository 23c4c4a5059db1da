"""The layers of `weft.haiku`, by topic."""
