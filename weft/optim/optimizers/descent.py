"""Gradient descent with momentum, noise or signs, and methods that scale by norms and squares."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft.optim.argument_docs import document
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    MaskOrFn,
    ScalarOrSchedule,
    identity,
)
from weft.optim.transforms.accumulation import ema, trace
from weft.optim.transforms.adding import add_decayed_weights, add_noise
from weft.optim.transforms.clipping import clip_by_block_rms
from weft.optim.transforms.combining import chain
from weft.optim.transforms.masking import masked
from weft.optim.transforms.scaling import (
    scale,
    scale_by_learning_rate,
    scale_by_optimistic_gradient,
    scale_by_param_block_rms,
    scale_by_polyak,
    scale_by_sign,
    scale_by_trust_ratio,
)
from weft.optim.transforms.squares import (
    scale_by_adadelta,
    scale_by_factored_rms,
    scale_by_rms,
    scale_by_rprop,
    scale_by_rss,
    scale_by_sm3,
    scale_by_stddev,
)


@document(
    "A `GradientTransformationExtraArgs`: `init(params)` and `update(grads, state, params)`.",
    accumulator_dtype="the dtype of the accumulated gradient.",
)
def sgd(
    learning_rate: ScalarOrSchedule,
    momentum: float | None = None,
    nesterov: bool = False,
    accumulator_dtype: Any = None,
) -> GradientTransformationExtraArgs:
    """Create gradient descent: `-lr * g`, or with momentum `-lr * t` where `t = g + momentum * t`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.sgd(0.1, momentum=0.9)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.05,  0.1 ], dtype=float32)
    """
    first = identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype)
    return chain(first, scale_by_learning_rate(learning_rate))


@document("A `GradientTransformationExtraArgs`.", learning_rate="a number or a schedule.")
def sign_sgd(learning_rate: ScalarOrSchedule) -> GradientTransformationExtraArgs:
    """Create sign descent: `-lr * sign(g)` (Bernstein et al. 2018).

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.sign_sgd(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.1,  0.1], dtype=float32)
    """
    return chain(scale_by_sign(), scale_by_learning_rate(learning_rate))


def signum(
    learning_rate: ScalarOrSchedule, beta: float = 0.9, accumulator_dtype: Any = None
) -> GradientTransformationExtraArgs:
    """Create Signum: `-lr * sign(average of g)` (Bernstein et al. 2018)."""
    average = ema(beta, debias=False, accumulator_dtype=accumulator_dtype)
    return chain(average, scale_by_sign(), scale_by_learning_rate(learning_rate))


def noisy_sgd(
    learning_rate: ScalarOrSchedule,
    eta: float = 0.01,
    gamma: float = 0.55,
    key: Any = None,
    *,
    seed: int | None = None,
) -> GradientTransformationExtraArgs:
    """Create noisy gradient descent: `-lr * (g + noise)`, with noise of variance `eta / t**gamma` (Neelakantan et al.
    2014).
    """
    if key is None and seed is None:
        seed = 0
    return chain(add_noise(eta, gamma, key, seed=seed), scale_by_learning_rate(learning_rate))


def optimistic_gradient_descent(
    learning_rate: ScalarOrSchedule, alpha: ScalarOrSchedule = 1.0, beta: ScalarOrSchedule = 1.0
) -> GradientTransformationExtraArgs:
    """Create optimistic descent: `-lr * ((alpha + beta) * g - beta * previous g)` (Mokhtari et al. 2019)."""
    return chain(scale_by_optimistic_gradient(alpha, beta), scale_by_learning_rate(learning_rate))  # type: ignore[arg-type]


def polyak_sgd(
    max_learning_rate: float = 1.0,
    scaling: ScalarOrSchedule = 1.0,
    f_min: float = 0.0,
    eps: float = 0.0,
    variant: str = "sps",
) -> GradientTransformationExtraArgs:
    """Create Polyak's rule: `-scaling * g * min((value - f_min) / (||g||^2 + eps), max_learning_rate)`.

    `update` needs `value`.
    """
    return chain(
        sgd(scaling),
        scale_by_polyak(f_min=f_min, max_learning_rate=max_learning_rate, eps=eps, variant=variant),
    )


def fromage(learning_rate: float, min_norm: float = 1e-6) -> GradientTransformationExtraArgs:
    """Create Fromage: updates to `(p - lr * g * ||p|| / ||g||) / sqrt(1 + lr^2)`, leaf by leaf (Bernstein et
    al. 2020).
    """
    shrink = 1 / wnp.sqrt(1 + learning_rate**2)
    return chain(
        scale_by_trust_ratio(min_norm),
        scale_by_learning_rate(learning_rate * shrink),
        add_decayed_weights(shrink - 1),
    )


def lars(
    learning_rate: ScalarOrSchedule,
    weight_decay: ScalarOrSchedule = 0.0,
    weight_decay_mask: MaskOrFn = True,
    trust_coefficient: float = 0.001,
    eps: float = 0.0,
    trust_ratio_mask: MaskOrFn = True,
    momentum: float = 0.9,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Create LARS: momentum of steps with the norm `trust_coefficient * ||p||` of their leaf (You et al. 2017).

    Args:
        learning_rate: a number, or a schedule: a function from the step count to a number.
        weight_decay: the factor of the parameters, or a schedule.
        weight_decay_mask: which parameters decay.
        trust_coefficient: the length of a step relative to that of the parameters.
        eps: a small number added to divisors.
        trust_ratio_mask: which parameters are scaled.
        momentum: the decay of the accumulated gradient; None for none.
        nesterov: whether to look ahead by one step.

    Returns:
        A `GradientTransformationExtraArgs`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.lars(0.1, trust_coefficient=1.0)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.1,  0.2], dtype=float32)
    """
    return chain(
        add_decayed_weights(weight_decay, mask=weight_decay_mask),
        masked(scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps), mask=trust_ratio_mask),
        scale_by_learning_rate(learning_rate),
        trace(momentum, nesterov),
    )


def rmsprop(
    learning_rate: ScalarOrSchedule,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: float | None = None,
    nesterov: bool = False,
    bias_correction: bool = False,
) -> GradientTransformationExtraArgs:
    """Create RMSProp: `-lr * g / sqrt(v + eps)`, with v the average of g^2, or the variance if `centered`.

    See Tieleman and Hinton 2012.

    Args:
        learning_rate: a number, or a schedule: a function from the step count to a number.
        decay: the decay of the average of squares.
        eps: a small number added to divisors.
        initial_scale: the first value of the average.
        eps_in_sqrt: whether `eps` is inside of the root.
        centered: whether to subtract the square of the mean.
        momentum: the decay of the accumulated gradient; None for none.
        nesterov: whether to look ahead by one step.
        bias_correction: whether to correct for the first value.

    Returns:
        A `GradientTransformationExtraArgs`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.rmsprop(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.316,  0.316], dtype=float32)
    """
    by = scale_by_stddev if centered else scale_by_rms
    scaled = by(decay, eps, initial_scale, eps_in_sqrt, bias_correction)
    last = identity() if momentum is None else trace(momentum, nesterov)
    return chain(scaled, scale_by_learning_rate(learning_rate), last)


def adagrad(
    learning_rate: ScalarOrSchedule, initial_accumulator_value: float = 0.1, eps: float = 1e-7
) -> GradientTransformationExtraArgs:
    """Create Adagrad: `-lr * g / sqrt(sum of g^2 + eps)` (Duchi et al. 2011).

    Args:
        learning_rate: a number, or a schedule: a function from the step count to a number.
        initial_accumulator_value: the first value of the sum.
        eps: a small number added to divisors.

    Returns:
        A `GradientTransformationExtraArgs`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.adagrad(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.085,  0.095], dtype=float32)
    """
    return chain(scale_by_rss(initial_accumulator_value, eps), scale_by_learning_rate(learning_rate))


def adadelta(
    learning_rate: ScalarOrSchedule | None = None,
    rho: float = 0.9,
    eps: float = 1e-6,
    weight_decay: ScalarOrSchedule = 0.0,
    weight_decay_mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create Adadelta: `-lr * g * rms(updates) / rms(g)`, with decaying averages (Zeiler 2012)."""
    return chain(
        add_decayed_weights(weight_decay, mask=weight_decay_mask),
        scale_by_adadelta(rho, eps),
        # Without a learning rate, use the step of the method itself, with the sign of descent.
        scale_by_learning_rate(1.0 if learning_rate is None else learning_rate),
    )


def sm3(learning_rate: float, momentum: float = 0.9) -> GradientTransformationExtraArgs:
    """Create SM3: Adagrad with one accumulator per row and column instead of per element (Anil et al. 2019)."""
    return chain(scale_by_sm3(momentum), scale(-learning_rate))


def rprop(
    learning_rate: float,
    eta_minus: float = 0.5,
    eta_plus: float = 1.2,
    min_step_size: float = 1e-6,
    max_step_size: float = 50.0,
) -> GradientTransformationExtraArgs:
    """Create Rprop: steps in the direction of -sign(g) that grow while the sign is constant (Riedmiller and Braun
    1993).
    """
    return chain(scale_by_rprop(learning_rate, eta_minus, eta_plus, min_step_size, max_step_size), scale(-1.0))


def adafactor(
    learning_rate: ScalarOrSchedule | None = None,
    min_dim_size_to_factor: int = 128,
    decay_rate: float = 0.8,
    decay_offset: int = 0,
    multiply_by_parameter_scale: bool = True,
    clipping_threshold: float | None = 1.0,
    momentum: float | None = None,
    dtype_momentum: Any = wnp.float32,
    weight_decay_rate: ScalarOrSchedule | None = None,
    eps: float = 1e-30,
    factored: bool = True,
    weight_decay_mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create Adafactor: Adam with second moments stored as products of row and column means.

    See Shazeer and Stern 2018.

    Args:
        learning_rate: a number, a schedule, or None for none.
        min_dim_size_to_factor: the least size of the two axes of a leaf that is factored.
        decay_rate: how quickly the decay of averages goes to 1.
        decay_offset: the step from which it counts.
        multiply_by_parameter_scale: whether steps are relative to the parameters.
        clipping_threshold: the largest root mean square of a step; None for any.
        momentum: the decay of the accumulated gradient; None for none.
        dtype_momentum: the dtype of the accumulated gradient.
        weight_decay_rate: the factor of the parameters.
        eps: a small number added to divisors.
        factored: whether to factor second moments.
        weight_decay_mask: which parameters decay.

    Returns:
        A `GradientTransformationExtraArgs`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.adafactor(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.158,  0.158], dtype=float32)
    """
    members: list[GradientTransformation] = [
        scale_by_factored_rms(factored, decay_rate, decay_offset, min_dim_size_to_factor, eps)
    ]
    if clipping_threshold is not None:
        members.append(clip_by_block_rms(clipping_threshold))
    if learning_rate is not None:
        members.append(scale_by_learning_rate(learning_rate, flip_sign=False))
    if multiply_by_parameter_scale:
        members.append(scale_by_param_block_rms())
    if momentum is not None:
        members.append(ema(momentum, debias=False, accumulator_dtype=dtype_momentum))
    if weight_decay_rate is not None:
        members.append(add_decayed_weights(weight_decay_rate, mask=weight_decay_mask))
    members.append(scale(-1))
    return chain(*members)
