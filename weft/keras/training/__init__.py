"""Training of models: `compile`, `fit`, `evaluate`, `predict`, and the steps that users may write themselves."""
