"""The ground floor: trees, dtypes and promotion, errors, settings, text printing, source locations."""
