"""Special functions that are operations of their own: computed in float64 from polynomials, series and fractions."""
