"""What arguments mean that many functions of `weft.optim` take: see `weft/base/docstrings.py`."""

from weft.errors import Documenter

document = Documenter(
    {
        "axis": "the axis or axes of the classes.",
        "b1": "the decay of the average of gradients.",
        "b2": "the decay of the average of squares.",
        "eps": "a small number added outside of the root.",
        "eps_root": "a small number added inside of the root.",
        "init_value": "the first value.",
        "learning_rate": "a number, or a schedule: a function from the step count to a number.",
        "logits": "unnormalized logarithms of probabilities.",
        "momentum": "the decay of the accumulated gradient; None for none.",
        "nesterov": "whether to look ahead by one step.",
        "predictions": "an array.",
        "scale": "the size of the set.",
        "targets": "an array of the same shape; 0 by default.",
        "tree": "a tree of arrays.",
        "tree_x": "a tree of arrays.",
        "tree_y": "a tree of the same structure.",
        "weight_decay": "the factor of the parameters, or a schedule.",
        "where": "booleans, false for classes that do not count.",
    },
    {
        "wnp.": "import weft.numpy as wnp",
        "optim.": "from weft import optim",
    },
)
