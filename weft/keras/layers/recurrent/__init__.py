"""Recurrent layers."""

from weft.keras.layers.recurrent.bidirectional import Bidirectional
from weft.keras.layers.recurrent.conv_lstm import ConvLSTM1D, ConvLSTM2D, ConvLSTM3D
from weft.keras.layers.recurrent.gru import GRU, GRUCell
from weft.keras.layers.recurrent.lstm import LSTM, LSTMCell
from weft.keras.layers.recurrent.rnn import RNN
from weft.keras.layers.recurrent.simple import SimpleRNN, SimpleRNNCell
from weft.keras.layers.recurrent.stacked import StackedRNNCells
from weft.keras.layers.recurrent.time_distributed import TimeDistributed

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Bidirectional",
    "ConvLSTM1D",
    "ConvLSTM2D",
    "ConvLSTM3D",
    "GRUCell",
    "LSTMCell",
    "SimpleRNN",
    "SimpleRNNCell",
    "StackedRNNCells",
    "TimeDistributed",
]
