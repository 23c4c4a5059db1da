"""Connectionist temporal classification: the likelihood of label sequences over all their alignments."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array, lax, nn
from weft.errors import ArgumentError
from weft.optim.losses.checks import floating, integers
from weft.typing import ArrayLike


def ctc_loss_with_forward_probs(
    logits: ArrayLike,
    logit_paddings: ArrayLike,
    labels: ArrayLike,
    label_paddings: ArrayLike,
    *,
    blank_id: int = 0,
    log_epsilon: float = -100000.0,
) -> tuple[Array, Array, Array]:
    """Compute `-log p(labels | logits)` for each sequence, and the forward probabilities of blanks and labels.

    Shapes: logits [B, T, K], logit_paddings [B, T], labels and label_paddings [B, N]; a padding of 1 is no part of the
    sequence. The forward probabilities are [T, B, N + 1] (Graves et al. 2006).
    """
    (logits,) = floating("ctc_loss", logits=logits)
    labels = integers("ctc_loss", "labels", labels)
    if logits.ndim != 3 or labels.ndim != 2 or labels.shape[0] != logits.shape[0]:
        raise ArgumentError(
            "ctc_loss takes logits [batch, time, class] and labels [batch, label], "
            f"and got shapes {logits.shape} and {labels.shape}"
        )
    logit_paddings, label_paddings = wnp.asarray(logit_paddings), wnp.asarray(label_paddings)
    batch, _, classes = logits.shape
    length = labels.shape[1]
    log_probs = nn.log_softmax(logits)
    label_lengths = length - wnp.sum(label_paddings, axis=1).astype(wnp.int32)

    # A repeated label can only be reached through a blank.
    repeated = (labels[:, :-1] == labels[:, 1:]).astype(wnp.float32)
    repeated = wnp.pad(repeated, ((0, 0), (0, 1)))

    by_time = log_probs.transpose(1, 0, 2)
    of_blank = by_time[:, :, blank_id : blank_id + 1]
    chosen = nn.one_hot(labels, classes, dtype=logits.dtype)
    of_labels = wnp.einsum("btk,bnk->tbn", log_probs, chosen)

    blank_start = wnp.ones((batch, length + 1), logits.dtype) * log_epsilon
    blank_start = blank_start.at[:, 0].set(0.0)
    label_start = wnp.ones((batch, length), logits.dtype) * log_epsilon

    def with_new(before: Any, entering: Any) -> Any:
        """Add to label states the transitions from the blanks before them."""
        return wnp.concatenate([before[:, :1], wnp.logaddexp(before[:, 1:], entering)], axis=1)

    def step(carry: Any, row: Any) -> Any:
        blank, label = carry
        blank_log, label_log, padding = row
        before_blank, before_label = blank, label
        entering = label + log_epsilon * repeated
        # Label n + 1 may directly follow label n, unless they are equal.
        to_next = with_new(blank, entering)
        new_label = wnp.logaddexp(to_next[:, :-1] + label_log, label + label_log)
        new_blank = wnp.concatenate([blank[:, :1], wnp.logaddexp(blank[:, 1:], label)], axis=1) + blank_log
        pad = padding[:, None]
        new_blank = pad * before_blank + (1.0 - pad) * new_blank
        new_label = pad * before_label + (1.0 - pad) * new_label
        return (new_blank, new_label), (new_blank, new_label)

    rows = (of_blank, of_labels, logit_paddings.transpose())
    _, (blanks, nonblanks) = lax.scan(step, (blank_start, label_start), rows)

    last_blank, last_label = blanks[-1], nonblanks[-1]
    ends = wnp.concatenate([last_blank[:, :1], wnp.logaddexp(last_blank[:, 1:], last_label)], axis=1)
    loss = -wnp.take_along_axis(ends, label_lengths[:, None], axis=1)[:, 0]
    # In the last row a sequence may end in a label or in the blank after it: add both.
    return loss, blanks.at[-1].set(ends), nonblanks


def ctc_loss(
    logits: ArrayLike,
    logit_paddings: ArrayLike,
    labels: ArrayLike,
    label_paddings: ArrayLike,
    *,
    blank_id: int = 0,
    log_epsilon: float = -100000.0,
) -> Array:
    """Compute `-log p(labels | logits)` for each sequence; `ctc_loss_with_forward_probs` describes the shapes."""
    options: dict[str, Any] = {"blank_id": blank_id, "log_epsilon": log_epsilon}
    return ctc_loss_with_forward_probs(logits, logit_paddings, labels, label_paddings, **options)[0]
