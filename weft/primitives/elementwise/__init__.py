"""Operations on elements: arithmetic, comparisons, functions."""
