"""Dense layers, embeddings, activations, inputs and wrappers."""

from weft.keras.layers.core.activation import ELU, Activation, LeakyReLU, PReLU, ReLU, Softmax
from weft.keras.layers.core.dense import Dense
from weft.keras.layers.core.einsum_dense import EinsumDense
from weft.keras.layers.core.embedding import Embedding, ReversibleEmbedding
from weft.keras.layers.core.exported import TFSMLayer
from weft.keras.layers.core.functions import FlaxLayer, JaxLayer
from weft.keras.layers.core.input_layer import Input, InputLayer
from weft.keras.layers.core.simple import Identity, Lambda, Masking
from weft.keras.layers.core.wrapper import Wrapper

__all__ = [
    "ELU",
    "Activation",
    "Dense",
    "EinsumDense",
    "Embedding",
    "FlaxLayer",
    "Identity",
    "Input",
    "InputLayer",
    "JaxLayer",
    "Lambda",
    "LeakyReLU",
    "Masking",
    "PReLU",
    "ReLU",
    "ReversibleEmbedding",
    "Softmax",
    "TFSMLayer",
    "Wrapper",
]
