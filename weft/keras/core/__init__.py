"""What everything in `weft.keras` is built on: variables and scopes, the context of calls, names, dtypes, seeds, and
the registry of objects. See docs/design/keras.md."""
