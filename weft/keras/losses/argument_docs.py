"""What arguments mean that many functions of `weft.keras.losses` take: see `weft/base/docstrings.py`."""

from weft.errors import Documenter

document = Documenter(
    {
        "y_pred": "predictions; the shapes broadcast.",
        "y_true": "targets.",
    },
    {
        "keras.": "from weft import keras",
    },
)
