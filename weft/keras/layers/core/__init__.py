"""Dense layers, embeddings, activations, inputs and wrappers."""

from weft.errors import export as _export
from weft.keras.layers.core.activation import (
    ELU as ELU,
    Activation as Activation,
    LeakyReLU as LeakyReLU,
    PReLU as PReLU,
    ReLU as ReLU,
    Softmax as Softmax,
)
from weft.keras.layers.core.dense import Dense as Dense
from weft.keras.layers.core.einsum_dense import EinsumDense as EinsumDense
from weft.keras.layers.core.embedding import Embedding as Embedding, ReversibleEmbedding as ReversibleEmbedding
from weft.keras.layers.core.exported import TFSMLayer as TFSMLayer
from weft.keras.layers.core.functions import FlaxLayer as FlaxLayer, JaxLayer as JaxLayer
from weft.keras.layers.core.input_layer import Input as Input, InputLayer as InputLayer
from weft.keras.layers.core.simple import Identity as Identity, Lambda as Lambda, Masking as Masking
from weft.keras.layers.core.wrapper import Wrapper as Wrapper

_export(__name__)
