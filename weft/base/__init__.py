"""The base layer: trees, dtypes and promotion, errors, settings, text printing, source locations."""
