"""Connectionist temporal classification: sequences of labels from scores of longer sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax, nn
from weft.errors import ArgumentError
from weft.keras.ops.dispatch import inexact, operation, tensor


@operation
def ctc_loss(target: Any, output: Any, target_length: Any, output_length: Any, mask_index: int = 0) -> Any:
    """Compute the negative log-likelihood of sequences of labels, given scores for each time step.

    Args:
        target: labels, integers of shape (batch, labels).
        output: logits of shape (batch, time, classes).
        target_length: how many labels of each sequence count.
        output_length: how many times of each sequence count.
        mask_index: the class that means no label.

    Returns:
        A vector, one loss a sequence, of at least single precision.
    """
    target, output = tensor(target), inexact(output)
    output = output.astype(wnp.promote_types(output.dtype, "float32"))
    padding = lambda lengths, size: (np.arange(size) >= tensor(lengths)[:, None]).astype(output.dtype)
    return weft.optim.ctc_loss(
        output,
        padding(output_length, output.shape[1]),
        target.astype("int32"),
        padding(target_length, target.shape[1]),
        blank_id=mask_index,
    )


@operation
def ctc_decode(
    inputs: Any,
    sequence_lengths: Any,
    strategy: str = "greedy",
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
    mask_index: int = 0,
) -> Any:
    """Decode scores to the likely sequences of labels.

    Args:
        inputs: logits of shape (batch, time, classes).
        sequence_lengths: how many times of each sequence count.
        strategy: "greedy" takes the best class of each time, "beam_search" adds up the paths that mean the same labels.
        beam_width: how many sequences a beam search continues with.
        top_paths: how many sequences a beam search returns.
        merge_repeated: whether a class at several times in a row is one label (strategy "greedy").
        mask_index: the class that means no label.

    Returns:
        Labels of shape (paths, batch, time), filled up with -1, and for each sequence of the batch the score of each
        path: minus the sum of the logits taken, or the logarithm of the probability.
    """
    inputs = inexact(inputs)
    lengths = tensor(sequence_lengths).astype("int32")
    mask_index = mask_index % inputs.shape[-1]
    if strategy == "greedy":
        return _greedy(inputs, lengths, merge_repeated, mask_index)
    if strategy != "beam_search":
        raise ArgumentError("`strategy` must be 'greedy' or 'beam_search'.", received=f"strategy={strategy!r}")
    if top_paths > beam_width:
        raise ArgumentError(
            "A beam search returns at most `beam_width` paths.", received=f"{top_paths=}, {beam_width=}"
        )
    search = lambda scores, length: _beam_search(scores, length, beam_width, top_paths, mask_index)
    labels, scores = weft.vmap(search)(nn.log_softmax(inputs), lengths)
    return wnp.swapaxes(labels, 0, 1), scores


def _left_justify(labels: Any, valid: Any) -> Any:
    """Move the valid labels of each sequence to the front, in order, with -1 after them."""
    time = labels.shape[-1]
    position = wnp.where(valid, wnp.cumsum(valid, -1) - 1, time)
    rows = np.arange(labels.shape[0])[:, None]
    return wnp.full((labels.shape[0], time + 1), -1, "int32").at[rows, position].set(labels)[:, :time]


def _greedy(inputs: Any, lengths: Any, merge_repeated: bool, mask_index: int) -> tuple[Any, Any]:
    time = inputs.shape[1]
    inside = np.arange(time) < lengths[:, None]
    labels = wnp.argmax(inputs, -1).astype("int32")
    score = -wnp.sum(wnp.where(inside, wnp.max(inputs, -1), 0), -1, keepdims=True)
    valid = inside & (labels != mask_index)
    if merge_repeated:
        before = wnp.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
        valid = valid & (labels != before)
    return _left_justify(labels, valid)[None], score


def _beam_search(scores: Any, length: Any, width: int, paths: int, mask_index: int) -> tuple[Any, Any]:
    """Search for the most likely sequences of labels, given log-probabilities of shape (time, classes).

    The state is `width` sequences of labels, their lengths, and the log-probabilities of all paths that decode to them
    and end in no label, or in their last label.
    """
    time, classes = scores.shape
    never = float(wnp.finfo(scores.dtype).min) / 4
    labels = wnp.full((width, time), -1, "int32")
    counts = wnp.zeros(width, "int32")
    first = wnp.where(np.arange(width) == 0, 0.0, never).astype(scores.dtype)
    start = (labels, counts, first, wnp.full(width, never, scores.dtype))

    def step(state: Any, at: Any) -> tuple[Any, None]:
        labels, counts, blank, ends = state
        now, inside = at
        total = wnp.logaddexp(blank, ends)
        last = wnp.where(counts > 0, wnp.take_along_axis(labels, wnp.maximum(counts - 1, 0)[:, None], 1)[:, 0], -1)
        # Sequences that stay: no label now, or their last one again.
        stay_blank = total + now[mask_index]
        stay_ends = ends + wnp.where(counts > 0, now[last], never)
        # Sequences with one label more; the same label again needs no label between both.
        again = np.arange(classes) == last[:, None]
        longer = wnp.where(again, blank[:, None], total[:, None]) + now
        longer = wnp.where((np.arange(classes) == mask_index) | (counts[:, None] >= time), never, longer)
        # One more label may be a sequence of the beam: `j` is `i` with the last label of `j`.
        position = wnp.arange(time, dtype="int32")
        prefix = wnp.where(position < counts[:, None] - 1, labels, -1)
        extends = (prefix[:, None] == labels[None]).all(-1) & (counts[:, None] == counts[None] + 1)
        merged = wnp.where(extends, longer[:, wnp.maximum(last, 0)].T, never)
        stay_ends = wnp.logaddexp(stay_ends, nn.logsumexp(merged, axis=1))
        taken = (extends[:, :, None] & (last[:, None, None] == np.arange(classes))).any(0)
        longer = wnp.where(taken, never, longer)
        candidates = wnp.concatenate([wnp.logaddexp(stay_blank, stay_ends), longer.reshape(-1)])
        _, chosen = lax.top_k(candidates, width)
        stays = chosen < width
        source = wnp.where(stays, chosen, (chosen - width) // classes)
        label = ((chosen - width) % classes).astype("int32")
        rows = labels[source]
        written = wnp.where(~stays[:, None] & (position == counts[source][:, None]), label[:, None], rows)
        after = (
            written,
            counts[source] + (~stays).astype("int32"),
            wnp.where(stays, stay_blank[source], never),
            wnp.where(stays, stay_ends[source], candidates[chosen]),
        )
        return weft.tree.map(lambda new, old: wnp.where(inside, new, old), after, state), None

    (labels, counts, blank, ends), _ = lax.scan(step, start, (scores, np.arange(time) < length))
    best, order = lax.top_k(wnp.logaddexp(blank, ends), paths)
    return labels[order], best
