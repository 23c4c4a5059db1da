"""Adam and its relatives."""

from __future__ import annotations

from typing import Any

from weft.optim.argument_docs import document
from weft.optim.base import GradientTransformationExtraArgs, MaskOrFn, ScalarOrSchedule
from weft.optim.transforms.adaptive import (
    scale_by_adam,
    scale_by_adamax,
    scale_by_adan,
    scale_by_amsgrad,
    scale_by_belief,
    scale_by_lion,
    scale_by_novograd,
    scale_by_radam,
    scale_by_yogi,
)
from weft.optim.transforms.adding import add_decayed_weights
from weft.optim.transforms.combining import chain
from weft.optim.transforms.scaling import scale_by_learning_rate, scale_by_optimistic_gradient, scale_by_trust_ratio


@document(
    "A `GradientTransformationExtraArgs`: `init(params)` and `update(grads, state, params)`.",
    mu_dtype="the dtype of the average of gradients; that of the parameters by default.",
)
def adam(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Create Adam: `-lr * m / (sqrt(v + eps_root) + eps)`, with m and v the corrected averages of g and g^2.

    See Kingma and Ba 2014.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.adam(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.1,  0.1], dtype=float32)
    >>> optim.apply_updates(params, updates).round(3)
    Array([0.9, 2.1], dtype=float32)
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov), scale_by_learning_rate(learning_rate)
    )


def nadam(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """Create NAdam: Adam with Nesterov momentum (Dozat 2016)."""
    return adam(learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)


@document(
    "A `GradientTransformationExtraArgs`.",
    mu_dtype="the dtype of the average of gradients; that of the parameters by default.",
    mask="a tree of booleans, or a function that makes one: which parameters decay.",
)
def adamw(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: MaskOrFn | None = None,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Create AdamW: Adam with `weight_decay * p` added before the learning rate (Loshchilov and Hutter 2019).

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.adamw(0.1, weight_decay=0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.11,  0.08], dtype=float32)
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def nadamw(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: MaskOrFn | None = None,
    *,
    nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """Create AdamW with Nesterov momentum."""
    return adamw(learning_rate, b1, b2, eps, eps_root, mu_dtype, weight_decay, mask, nesterov=nesterov)


def amsgrad(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> GradientTransformationExtraArgs:
    """Create AMSGrad: Adam with the largest v so far, so that step sizes do not increase (Reddi et al. 2018)."""
    return chain(
        scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype, bias_correction_mu, bias_correction_nu),
        scale_by_learning_rate(learning_rate),
    )


def adamax(
    learning_rate: ScalarOrSchedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> GradientTransformationExtraArgs:
    """Create Adamax: `-lr * m / v`, with v the decaying maximum of |g| (Kingma and Ba 2014)."""
    return chain(scale_by_adamax(b1, b2, eps), scale_by_learning_rate(learning_rate))


def adamaxw(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create Adamax with decoupled weight decay."""
    return chain(
        scale_by_adamax(b1, b2, eps), add_decayed_weights(weight_decay, mask), scale_by_learning_rate(learning_rate)
    )


def adabelief(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-16,
    eps_root: float = 1e-16,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Create AdaBelief: Adam with `(g - m)^2` in place of g^2 (Zhuang et al. 2020)."""
    return chain(scale_by_belief(b1, b2, eps, eps_root, nesterov=nesterov), scale_by_learning_rate(learning_rate))


def adan(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.98,
    b2: float = 0.92,
    b3: float = 0.99,
    eps: float = 1e-8,
    eps_root: float = 1e-8,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create Adan: averages of gradients and of their changes, a form of Nesterov momentum (Xie et al. 2022)."""
    return chain(
        scale_by_adan(b1, b2, b3, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


@document("A `GradientTransformationExtraArgs`.")
def yogi(
    learning_rate: ScalarOrSchedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-3
) -> GradientTransformationExtraArgs:
    """Create Yogi: Adam whose second moment changes by additive steps (Zaheer et al. 2018).

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.yogi(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.1,  0.1], dtype=float32)
    """
    return chain(scale_by_yogi(b1, b2, eps), scale_by_learning_rate(learning_rate))


def radam(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    threshold: float = 5.0,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Create RAdam: Adam that rectifies the variance of its second moment in early steps (Liu et al. 2020)."""
    return chain(
        scale_by_radam(b1, b2, eps, eps_root, threshold, nesterov=nesterov), scale_by_learning_rate(learning_rate)
    )


def lion(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.99,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 1e-3,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create Lion: `-lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * p)` (Chen et al. 2023)."""
    return chain(
        scale_by_lion(b1, b2, mu_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


@document(
    "A `GradientTransformationExtraArgs`.",
    mask="a tree of booleans, or a function that makes one: which parameters decay.",
)
def lamb(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    eps_root: float = 0.0,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create LAMB: AdamW whose step in each leaf has the norm of its parameters (You et al. 2020).

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.lamb(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.158,  0.158], dtype=float32)
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_trust_ratio(),
        scale_by_learning_rate(learning_rate),
    )


def novograd(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.25,
    eps: float = 1e-6,
    eps_root: float = 0.0,
    weight_decay: float = 0.0,
) -> GradientTransformationExtraArgs:
    """Create NovoGrad: momentum of gradients divided by the norm of their leaf (Ginsburg et al. 2019)."""
    return chain(scale_by_novograd(b1, b2, eps, eps_root, weight_decay), scale_by_learning_rate(learning_rate))


def optimistic_adam(
    learning_rate: float,
    optimism: float | None = None,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """Create optimistic Adam: `-lr * r - optimism * (r - previous r)`, with r of Adam (Daskalakis et al. 2017)."""
    beta = learning_rate if optimism is None else optimism
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        scale_by_optimistic_gradient(alpha=learning_rate, beta=beta),
        scale_by_learning_rate(1.0),
    )


def optimistic_adam_v2(
    learning_rate: ScalarOrSchedule,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """Create optimistic Adam: `-lr * (alpha * r + beta * (r - previous r))`, with r the direction of Adam."""
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        scale_by_optimistic_gradient(alpha=alpha, beta=beta),
        scale_by_learning_rate(learning_rate),
    )
