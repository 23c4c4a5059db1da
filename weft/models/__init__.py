"""Pre-trained models: Hugging Face's files in, text, vectors and labels out."""

from weft.errors import publish as _publish
from weft.models.config import Config as Config, Kind as Kind, Rope as Rope, Tower as Tower
from weft.models.families import read_config as read_config
from weft.models.files import shard as shard
from weft.models.model import Model as Model, load as load
from weft.models.parameters import count_parameters as count_parameters, init as init
from weft.models.preparation import log_mel as log_mel, prepare_images as prepare_images
from weft.models.quantization import Quantized as Quantized, dequantize as dequantize, quantize as quantize
from weft.models.sampling import Sampler as Sampler
from weft.models.search import beam_search as beam_search, speculate as speculate
from weft.models.tokenizer import Tokenizer as Tokenizer
from weft.models.training import (
    add_lora as add_lora,
    cast as cast,
    merge_lora as merge_lora,
    next_token_loss as next_token_loss,
    pack_texts as pack_texts,
    set_lora as set_lora,
)
from weft.models.trees import load_tree as load_tree

_publish(__name__)
