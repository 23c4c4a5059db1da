"""Functions of arrays in Keras' vocabulary (`padding="same"`, `data_format="channels_first"`).

Layers and `weft.keras.ops` share them; the mathematics is that of `weft.lax` and `weft.nn`.
"""
