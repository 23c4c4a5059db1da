"""SciPy on arrays that can be traced, differentiated and vectorised."""
