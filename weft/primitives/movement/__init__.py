"""Operations that move elements: shapes, slices, gather and scatter, sorting."""
