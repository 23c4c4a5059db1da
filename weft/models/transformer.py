"""The transformer: one program for all families, driven by the fields of a `Tower`.

Parameters are nested dicts. A projection is `{"weight": (out, in)}` with an optional bias; a part that a family does
not have is absent from the dict. The layers of a segment are stacked along a first axis and run by one `lax.scan`.

Tokens have *slots*: consecutive numbers that all sequences of a batch share. Shorter sequences are padded on the left,
so the position of a token is its slot minus the first slot of its sequence, and the last slots of all sequences agree.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax, nn
from weft.models.config import Kind, Tower
from weft.models.quantization import Quantized, multiply_experts, multiply_integers


def silu(x: Any) -> Any:
    """Multiply by the logistic function."""
    return x * lax.logistic(x)


def gelu(x: Any) -> Any:
    """Multiply by the normal distribution function."""
    return x * (0.5 * (1 + lax.erf(x * math.sqrt(0.5))))


def gelu_tanh(x: Any) -> Any:
    """Multiply by an approximation of the normal distribution function."""
    return x * (0.5 * (1 + wnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))))


# The functions of `weft.nn` are jitted: in a program for all sizes each of them would ask whether the size is one that
# it was called with before.
ACTIVATIONS = {
    "relu": lambda x: wnp.maximum(x, 0),
    "silu": silu,
    "swish": silu,
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "quick_gelu": lambda x: x * lax.logistic(1.702 * x),
    "tanh": wnp.tanh,
}


class Context(NamedTuple):
    """Where the tokens of a call stand, and what they may attend to.

    `positions` (batch, tokens) count from the start of each sequence, `slots` (tokens) from the start of the batch.
    `valid` (batch, keys) leaves out padding, `starts` (batch) all slots before the first of a sequence, and `pieces`
    (batch, tokens) number the sequences that share a row. `buckets` is the table of biases of relative positions.
    """

    positions: Any
    slots: Any
    valid: Any = None
    starts: Any = None
    pieces: Any = None
    buckets: Any = None


class Memory(NamedTuple):
    """Keys and values of the layers of one kind: arrays (repeats, batch, capacity, key heads, head size)."""

    keys: Any
    values: Any


# ------------------------------------------------------------------------------------------------------ building blocks


def project(x: Any, w: dict[str, Any]) -> Any:
    """Multiply by a matrix (out, in) and add the bias if there is one. All products of weights go through here.

    With an adapter (`{"lora": {"down": (rank, in), "up": (out, rank)}}`) the product of its matrices is added.
    """
    y = multiply(x, w["weight"])
    if "lora" in w:
        y = y + multiply(multiply(x, w["lora"]["down"]), w["lora"]["up"])
    return y + w["bias"].astype(y.dtype) if "bias" in w else y


def multiply(x: Any, weight: Any) -> Any:
    """Multiply rows by the transpose of a matrix (out, in) in the dtype of the rows."""
    if isinstance(weight, Quantized):
        return multiply_integers(x, weight)
    return lax.dot_general(x, weight.astype(x.dtype), (((x.ndim - 1,), (1,)), ((), ())))


def normalize(x: Any, w: dict[str, Any], tower: Tower) -> Any:
    """Normalize the last axis in float32."""
    wide = x.astype(wnp.float32)
    if tower.norm == "layer":
        wide = wide - wide.mean(-1, keepdims=True)
    wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + np.float32(tower.epsilon))
    if tower.unit_offset:
        return (wide * (1.0 + w["weight"].astype(wnp.float32))).astype(x.dtype)
    y = wide.astype(x.dtype) * w["weight"].astype(x.dtype)
    return y + w["bias"].astype(x.dtype) if "bias" in w else y


def rotate(x: Any, positions: Any, kind: Kind) -> Any:
    """Apply a rotary embedding to the first elements of each head of (batch, tokens, heads, size)."""
    if kind.rope is None:
        return x
    half = len(kind.rope.frequencies)
    angles = positions[..., None, None].astype(wnp.float32) * np.array(kind.rope.frequencies, np.float32)
    cosine = (wnp.cos(angles) * np.float32(kind.rope.factor)).astype(x.dtype)
    sine = (wnp.sin(angles) * np.float32(kind.rope.factor)).astype(x.dtype)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return wnp.concatenate([first * cosine - second * sine, second * cosine + first * sine, rest], -1)


def mask(context: Context, slots: Any, valid: Any, kind: Kind, causal: bool) -> Any:
    """Return which keys, at these slots, a query may attend to; broadcasts to (batch, heads, group, queries, keys)."""
    queries, keys = context.slots[:, None], slots[None, :]
    allowed = keys >= 0
    if causal:
        allowed = allowed & (keys <= queries)
    if kind.window is not None:
        allowed = allowed & (queries - keys < kind.window)
    allowed = allowed[None]
    if context.starts is not None:
        allowed = allowed & (keys >= context.starts[:, None])[:, None]
    if valid is not None:
        allowed = allowed & valid[:, None]
    if context.pieces is not None:
        allowed = allowed & (context.pieces[:, :, None] == context.pieces[:, None])
    return allowed[:, None, None]


def attend(q: Any, k: Any, v: Any, allowed: Any, bias: Any, tower: Tower) -> Any:
    """Compute softmax(q kᵀ) v with the softmax in float32; k and v may have fewer heads than q."""
    batch, tokens, heads, size = q.shape
    q = q.reshape(batch, tokens, k.shape[2], heads // k.shape[2], size)
    logits = wnp.einsum("btghd,bsgd->bghts", q, k, preferred_element_type=wnp.float32) * np.float32(tower.scale)
    if tower.attention_cap is not None:
        logits = tower.attention_cap * wnp.tanh(logits / tower.attention_cap)
    if bias is not None:
        logits = logits + bias
    if allowed is not None:
        logits = wnp.where(allowed, logits, np.float32(-1e30))
    return wnp.einsum("bghts,bsgd->btghd", nn.softmax(logits).astype(v.dtype), v).reshape(batch, tokens, heads * size)


def bucket_bias(table: Any, queries: Any, keys: Any, tower: Tower) -> Any:
    """Return the biases (1, heads, 1, queries, keys) of relative positions, whose buckets grow with the distance."""
    distance = queries[:, None] - keys[None, :]
    count = tower.buckets if tower.causal else tower.buckets // 2
    first: Any = 0
    if not tower.causal:
        first = wnp.where(distance < 0, count, 0)
        distance = wnp.abs(distance)
    distance, exact = wnp.maximum(distance, 0), count // 2
    far = wnp.log(wnp.maximum(distance, 1).astype(wnp.float32) / exact) / math.log(tower.distance / exact)
    far = wnp.minimum(exact + (far * (count - exact)).astype(wnp.int32), count - 1)
    bias = table.astype(wnp.float32)[first + wnp.where(distance < exact, distance, far)]
    return wnp.transpose(bias, (2, 0, 1))[None, :, None]


# --------------------------------------------------------------------------------------------------------------- memory


def ring_slots(capacity: int, end: Any) -> Any:
    """Return the slot that each place of a ring holds after `end` tokens were stored; negative if it is empty."""
    last = end - 1
    return last - (last - wnp.arange(capacity, dtype=wnp.int32)) % capacity


def store(memory: Memory, index: Any, k: Any, v: Any, start: Any, kind: Kind) -> Memory:
    """Store the keys and values of tokens from slot `start` on in the memory of layer `index`."""
    capacity, tokens = memory.keys.shape[2], k.shape[1]
    if kind.window is None or _is_one(tokens):
        at = start if kind.window is None else start % capacity
        return Memory(
            lax.dynamic_update_slice(memory.keys, k[None].astype(memory.keys.dtype), (index, 0, at, 0, 0)),
            lax.dynamic_update_slice(memory.values, v[None].astype(memory.values.dtype), (index, 0, at, 0, 0)),
        )
    slots = ring_slots(capacity, start + tokens)
    is_new = (slots >= start)[None, :, None, None]

    def replace(old: Any, new: Any) -> Any:
        held = lax.dynamic_index_in_dim(old, index, 0, keepdims=False)
        fresh = wnp.take(new.astype(old.dtype), wnp.clip(slots - start, 0, tokens - 1), axis=1)
        return lax.dynamic_update_index_in_dim(old, wnp.where(is_new, fresh, held), index, 0)

    return Memory(replace(memory.keys, k), replace(memory.values, v))


def recall(memory: Memory, index: Any, k: Any, v: Any, start: Any, kind: Kind) -> tuple[Any, Any, Any, Memory]:
    """Store keys and values, and return those to attend to with their slots and the new memory."""
    capacity, tokens = memory.keys.shape[2], k.shape[1]
    new = store(memory, index, k, v, start, kind)
    if kind.window is None or _is_one(tokens):
        slots = wnp.arange(capacity) if kind.window is None else ring_slots(capacity, start + tokens)
        return _layer(new.keys, index), _layer(new.values, index), slots, new
    # A ring forgets keys that the first of several tokens still needs, so these attend to the old ring and themselves.
    slots = wnp.concatenate([ring_slots(capacity, start), start + wnp.arange(tokens)])
    keys = wnp.concatenate([_layer(memory.keys, index), k.astype(memory.keys.dtype)], 1)
    return keys, wnp.concatenate([_layer(memory.values, index), v.astype(memory.values.dtype)], 1), slots, new


def _layer(stack: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(stack, index, 0, keepdims=False)


def _is_one(tokens: Any) -> bool:
    return type(tokens) is int and tokens == 1


# --------------------------------------------------------------------------------------------------------------- layers


class Call(NamedTuple):
    """Arguments that all layers of a call share: where its tokens stand, and the slots that memories already hold.

    `held` is None without memory, the integer 0 for the first tokens, else the number of slots before this call.
    """

    tower: Tower
    context: Context
    held: Any = None


def split_heads(x: Any, size: int) -> Any:
    """Split the last axis into heads."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def self_attention(x: Any, w: dict[str, Any], call: Call, kind: Kind, memory: Any, index: Any) -> tuple[Any, Any]:
    """Attend to the tokens of this call and, with a memory, to earlier ones."""
    tower, context = call.tower, call.context
    q, k, v = (split_heads(project(x, w[name]), tower.head_size) for name in ("query", "key", "value"))
    if "query_norm" in w:
        q, k = normalize(q, w["query_norm"], tower), normalize(k, w["key_norm"], tower)
    q, k = rotate(q, context.positions, kind), rotate(k, context.positions, kind)
    slots = context.slots
    if memory is not None:
        if type(call.held) is int:
            memory = store(memory, index, k, v, 0, kind)
        else:
            k, v, slots, memory = recall(memory, index, k, v, call.held, kind)
            k, v = k.astype(q.dtype), v.astype(q.dtype)
    bias = bucket_bias(context.buckets, context.slots, slots, tower) if context.buckets is not None else None
    free = not tower.causal and kind.window is None and context.valid is None and context.pieces is None
    allowed = None if free else mask(context, slots, context.valid, kind, tower.causal)
    return project(attend(q, k, v, allowed, bias, tower), w["output"]), memory


def cross_attention(x: Any, w: dict[str, Any], call: Call, states: Memory, valid: Any) -> Any:
    """Attend to the keys and values of an encoder's states."""
    q = split_heads(project(x, w["query"]), call.tower.head_size)
    allowed = None if valid is None else valid[:, None, None, None]
    return project(attend(q, states.keys, states.values, allowed, None, call.tower), w["output"])


def feed_forward(x: Any, w: dict[str, Any], tower: Tower) -> Any:
    """Apply the feed-forward layer, or the experts of each token."""
    if "router" in w:
        return mix_experts(x, w, tower)
    activation = ACTIVATIONS[tower.activation]
    if "gate" in w:
        return project(activation(project(x, w["gate"])) * project(x, w["up"]), w["down"])
    return project(activation(project(x, w["up"])), w["down"])


def mix_experts(x: Any, w: dict[str, Any], tower: Tower) -> Any:
    """Send each token through its best experts, and add them with the weights of the router.

    The matrices of experts are (experts, in, out). Tokens are sorted by expert, and each group is multiplied by the
    matrix of its expert.
    """
    rows = x.reshape(-1, x.shape[-1])
    shares = nn.softmax(project(rows, w["router"]).astype(wnp.float32))
    top, chosen = lax.top_k(shares, tower.experts_per_token)
    if tower.renormalize:
        top = top / top.sum(-1, keepdims=True)
    top = top.astype(x.dtype).reshape(-1)
    owners = chosen.reshape(-1)
    order = wnp.argsort(owners)
    sizes = wnp.zeros(shares.shape[-1], wnp.int32).at[owners].add(1)
    visitors = rows[order // tower.experts_per_token]

    def each(values: Any, name: str) -> Any:
        return multiply_experts(values, w["experts"][name], sizes, owners[order])

    hidden = ACTIVATIONS[tower.activation](each(visitors, "gate")) * each(visitors, "up")
    parts = each(hidden, "down") * top[order][:, None]
    y = wnp.zeros_like(rows).at[order // tower.experts_per_token].add(parts)
    if "shared" in w:
        y = y + lax.logistic(project(rows, w["shared_gate"])) * feed_forward(rows, w["shared"], tower)
    return y.reshape(x.shape)


def add_residual(x: Any, w: dict[str, Any], tower: Tower, block: Any) -> tuple[Any, Any]:
    """Add a block to the residual stream, with its norms; a block returns its result and a second value."""
    if tower.norm_last:
        y, other = block(x)
        return normalize(x + y, w["norm"], tower), other
    y, other = block(normalize(x, w["norm"], tower))
    if "after" in w:
        y = normalize(y, w["after"], tower)
    return x + y, other


def layer(x: Any, w: dict[str, Any], call: Call, kind: Kind, memory: Any, index: Any, states: Any) -> tuple[Any, Any]:
    """Run one layer: attention, attention to an encoder if there is one, and the feed-forward layer."""
    tower = call.tower

    def attention(h: Any) -> tuple[Any, Any]:
        return self_attention(h, w["attention"], call, kind, memory, index)

    if tower.parallel:
        h = normalize(x, w["attention"]["norm"], tower)
        y, memory = attention(h)
        return x + y + feed_forward(h, w["mlp"], tower), memory
    x, memory = add_residual(x, w["attention"], tower, attention)
    if states is not None:
        pair, valid = states
        x, _ = add_residual(x, w["cross"], tower, lambda h: (cross_attention(h, w["cross"], call, pair, valid), None))
    x, _ = add_residual(x, w["mlp"], tower, lambda h: (feed_forward(h, w["mlp"], tower), None))
    return x, memory


def run_layers(
    x: Any, params: dict[str, Any], call: Call, memories: Any = None, states: Any = None, remat: bool = False
) -> tuple[Any, Any]:
    """Run all layers of a tower, and its last norm.

    Args:
        x: embeddings (batch, tokens, width).
        params: the parameters of the tower.
        call: the tower and where the tokens stand.
        memories: for each segment a list with a `Memory` for each of its kinds, or None.
        states: keys and values of an encoder for each segment and kind, and the mask of its states; or None.
        remat: whether the layers are recomputed in the backward pass.

    Returns:
        The states after the last norm, and the new memories.
    """
    pairs, valid = states if states is not None else (None, None)
    found: list[Any] = []
    for number, segment in enumerate(call.tower.segments):

        def body(carry: Any, xs: Any, kinds: tuple[Kind, ...] = segment.kinds) -> tuple[Any, None]:
            x, held = carry
            index, weights, crossed = xs
            held = list(held) if held is not None else [None] * len(kinds)
            for i, kind in enumerate(kinds):
                pair = None if crossed is None else (crossed[i], valid)
                x, held[i] = layer(x, weights[i], call, kind, held[i], index, pair)
            return (x, held if memories is not None else None), None

        scanned = (
            wnp.arange(segment.repeats, dtype=wnp.int32),
            params["layers"][number],
            None if pairs is None else pairs[number],
        )
        carry = (x, None if memories is None else list(memories[number]))
        (x, held), _ = lax.scan(weft.checkpoint(body) if remat else body, carry, scanned)
        found.append(held)
    if call.tower.final_norm:
        x = normalize(x, params["norm"], call.tower)
    return x, found if memories is not None else None


def encoder_memories(states: Any, params: dict[str, Any], tower: Tower) -> list[Any]:
    """Return the keys and values that the layers of a decoder compute from the states of its encoder."""

    def pair(_: Any, weights: Any) -> tuple[Any, Any]:
        split = [
            Memory(*(split_heads(project(states, w["cross"][name]), tower.head_size) for name in ("key", "value")))
            for w in weights
        ]
        return _, split

    return [lax.scan(pair, 0, params["layers"][i])[1] for i in range(len(tower.segments))]


# ----------------------------------------------------------------------------------------------------------- embeddings


def token_embeddings(ids: Any, params: dict[str, Any], tower: Tower, positions: Any, types: Any = None) -> Any:
    """Look up the embeddings of tokens, positions and types, and normalize their sum if the tower does."""
    x = params["tokens"]["weight"][ids]
    if isinstance(x, Quantized):
        x = x.dequantize()
    if tower.embedding_scale != 1.0:
        x = x * np.array(tower.embedding_scale, x.dtype)
    if tower.positions:
        x = x + params["positions"]["weight"][positions + tower.position_offset].astype(x.dtype)
    if tower.types:
        x = x + params["types"]["weight"][0 if types is None else types].astype(x.dtype)
    return normalize(x, params["embedding_norm"], tower) if tower.embedding_norm else x


def patch_embeddings(images: Any, params: dict[str, Any], tower: Tower) -> Any:
    """Project the patches of images (batch, channels, height, width), and add the learned positions."""
    batch, size = images.shape[0], tower.patch
    x = lax.conv_general_dilated(images, params["patches"]["weight"].astype(images.dtype), (size, size), "VALID")
    x = x.reshape(batch, tower.width, -1).transpose(0, 2, 1)
    if "bias" in params["patches"]:
        x = x + params["patches"]["bias"].astype(x.dtype)
    if tower.class_token:
        first = params["class_token"].astype(x.dtype).reshape(1, 1, tower.width)
        x = wnp.concatenate([wnp.broadcast_to(first, (batch, 1, tower.width)), x], 1)
    x = x + params["positions"]["weight"].astype(x.dtype).reshape(1, -1, tower.width)
    return normalize(x, params["embedding_norm"], tower) if tower.embedding_norm else x


def sound_embeddings(features: Any, params: dict[str, Any], tower: Tower) -> Any:
    """Apply the two convolutions of a speech model to (batch, bins, frames), and add the positions."""
    x = features
    for name, stride in (("first_convolution", 1), ("second_convolution", 2)):
        w = params[name]
        x = lax.conv_general_dilated(x, w["weight"].astype(x.dtype), (stride,), [(1, 1)])
        x = nn.gelu(x + w["bias"].astype(x.dtype)[:, None], approximate=False)
    x = x.transpose(0, 2, 1)
    return x + params["positions"]["weight"][: x.shape[1]].astype(x.dtype)


def encode(x: Any, params: dict[str, Any], tower: Tower, valid: Any = None, pieces: Any = None) -> Any:
    """Run the layers of a tower over embeddings, without memory."""
    context = plain_context(x.shape[0], x.shape[1], params, valid, pieces)
    return run_layers(x, params, Call(tower, context))[0]


def plain_context(batch: Any, tokens: Any, params: dict[str, Any], valid: Any = None, pieces: Any = None) -> Context:
    """Return the context of whole sequences.

    Args:
        batch, tokens: sizes.
        params: the parameters of the tower.
        valid: a mask (batch, tokens) of the tokens that are no padding; positions count these.
        pieces: integers (batch, tokens) that number the sequences packed into a row; positions restart with each.

    Returns:
        A `Context`.
    """
    slots = wnp.arange(tokens, dtype=wnp.int32)
    positions = wnp.broadcast_to(slots, (batch, tokens))
    if pieces is not None:
        begins = wnp.concatenate([wnp.ones((batch, 1), bool), pieces[:, 1:] != pieces[:, :-1]], 1)
        positions = positions - lax.cummax(wnp.where(begins, slots, 0), axis=1)
    elif valid is not None:
        valid = valid.astype(bool)
        positions = wnp.maximum(wnp.cumsum(valid.astype(wnp.int32), -1) - 1, 0)
    table = params["buckets"]["weight"] if "buckets" in params else None
    return Context(positions, slots, valid, None, pieces, table)
