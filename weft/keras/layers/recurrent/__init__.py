"""Recurrent layers."""

from weft.errors import export as _export
from weft.keras.layers.recurrent.bidirectional import Bidirectional as Bidirectional
from weft.keras.layers.recurrent.conv_lstm import (
    ConvLSTM1D as ConvLSTM1D,
    ConvLSTM2D as ConvLSTM2D,
    ConvLSTM3D as ConvLSTM3D,
)
from weft.keras.layers.recurrent.gru import GRU as GRU, GRUCell as GRUCell
from weft.keras.layers.recurrent.lstm import LSTM as LSTM, LSTMCell as LSTMCell
from weft.keras.layers.recurrent.rnn import RNN as RNN
from weft.keras.layers.recurrent.simple import SimpleRNN as SimpleRNN, SimpleRNNCell as SimpleRNNCell
from weft.keras.layers.recurrent.stacked import StackedRNNCells as StackedRNNCells
from weft.keras.layers.recurrent.time_distributed import TimeDistributed as TimeDistributed

_export(__name__)
