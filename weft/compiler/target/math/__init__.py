"""Elementary and special functions as short straight-line code over lanes of float32 or float64."""
