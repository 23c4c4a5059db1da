"""Diffrax: a pendulum, a vmapped solve with events of time saved, and a neural ODE trained through the solver."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

times = jnp.linspace(0.0, 3.0, 7)


def pendulum(t, y, args):
    return jnp.array([y[1], -args * jnp.sin(y[0])])


@jax.jit
def swing(start, gravity):
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(pendulum),
        diffrax.Tsit5(),
        t0=0.0,
        t1=3.0,
        dt0=0.1,
        y0=start,
        args=gravity,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-5),
    )
    return solution.ys


class Field(eqx.Module):
    mlp: eqx.nn.MLP

    def __call__(self, t, y, args):
        return self.mlp(y)


targets = swing(jnp.array([1.0, 0.0]), 2.0)
optimizer = optax.adam(3e-3)


@eqx.filter_value_and_grad
def loss_of(field):
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Heun(),
        t0=0.0,
        t1=3.0,
        dt0=0.1,
        y0=jnp.array([1.0, 0.0]),
        saveat=diffrax.SaveAt(ts=times),
    )
    return jnp.mean((solution.ys - targets) ** 2)


@eqx.filter_jit
def train_step(field, memory):
    loss, grads = loss_of(field)
    updates, memory = optimizer.update(grads, memory)
    return eqx.apply_updates(field, updates), memory, loss


def make():
    field = Field(eqx.nn.MLP(2, 2, 16, 2, activation=jax.nn.softplus, key=jax.random.key(0)))
    carry = [field, optimizer.init(eqx.filter(field, eqx.is_inexact_array))]

    def step():
        *carry[:], loss = train_step(*carry)
        return loss

    return step


def numbers():
    starts = jnp.array([[1.0, 0.0], [0.5, 0.3], [2.0, -1.0]])
    many = jax.vmap(swing, in_axes=(0, None))(starts, 2.0)
    gravity = jax.grad(lambda g: swing(starts[0], g)[-1, 0])(2.0)
    step = make()
    return {
        "path": np.asarray(targets).ravel().tolist(),
        "many": np.asarray(many).ravel().tolist(),
        "gravity": [float(gravity)],
        "loss": [float(step()) for _ in range(15)],
    }


TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
