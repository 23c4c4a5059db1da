"""Errors of jitted calls, of running programs, and of jaxprs as text or data."""

from __future__ import annotations

from weft.base.errors.layout import WeftError
from weft.base.errors.tracing import JAXTypeError

# ------------------------------------------------------------------------------------------------------ jit and running


class UnhashableStaticArgumentError(WeftError, ValueError):
    """A static argument of `jit` is not hashable.

    The value of a static argument is part of the cache key of the traced function, so it must be hashable, and its hash
    and equality must not change. Pass a tuple instead of a list, and pass arrays as ordinary arguments.

    Wrong::

        import weft
        import weft.numpy as wnp

        reshape = weft.jit(lambda x, shape: x.reshape(shape), static_argnums=1)
        reshape(wnp.ones(6), [2, 3])

    Right::

        import weft
        import weft.numpy as wnp

        reshape = weft.jit(lambda x, shape: x.reshape(shape), static_argnums=1)
        reshape(wnp.ones(6), (2, 3))
    """


class DonatedArrayError(WeftError, RuntimeError):
    """An array was used after it had been donated to a jitted function, or deleted.

    `donate_argnums` lets the function write its result into the memory of the argument, whose contents are lost. Use
    the result, or do not donate.

    Wrong::

        import weft
        import weft.numpy as wnp

        step = weft.jit(lambda x: x + 1, donate_argnums=0)
        x = wnp.ones(3)
        step(x)
        x + 1

    Right::

        import weft
        import weft.numpy as wnp

        step = weft.jit(lambda x: x + 1, donate_argnums=0)
        x = wnp.ones(3)
        x = step(x)
        x + 1
    """


class OutOfMemoryError(WeftError, MemoryError):
    """Memory for an array, or for the temporaries of a program, could not be allocated.

    The message says how many bytes were requested and for what, what else the program uses, and its largest buffers
    with their lines. Memory that Weft had cached has already been released. Process the data in parts (`lax.map`,
    smaller batches), donate arguments that are not used afterwards (`donate_argnums`), or use `weft.checkpoint` in the
    differentiated function.

    Wrong::

        import weft
        import weft.numpy as wnp

        weft.jit(lambda x: wnp.zeros(1 << 46) + x)(1.0)

    Right::

        import weft
        import weft.numpy as wnp

        weft.jit(lambda x: wnp.zeros(1 << 16) + x)(1.0)
    """


class FileFormatError(WeftError, ValueError):
    """A file to load arrays from is malformed: truncated, modified, or of another format.

    The message has the file and the reason. Nothing is loaded from such a file; obtain a new copy.

    Wrong::

        from weft.modules import safetensors

        data = safetensors.serialize({"w": 1.0})
        safetensors.deserialize(data[:-1])

    Right::

        from weft.modules import safetensors

        data = safetensors.serialize({"w": 1.0})
        safetensors.deserialize(data)
    """


class CheckpointMismatchError(WeftError, ValueError):
    """The leaves of a checkpoint differ from those that `restore` requested.

    The message lists all differences by the path of the leaf: leaves of `like` that the checkpoint does not have
    (missing), leaves that only the checkpoint has (unexpected; `partial=True` ignores them), different shapes and
    dtypes, and arrays that cannot have the requested sharding. `weft.checkpointing.metadata(path).tree` shows the
    contents of a checkpoint, and can be passed as `like`.

    Wrong::

        import tempfile
        import weft.numpy as wnp
        from weft import checkpointing

        with tempfile.TemporaryDirectory() as folder:
            checkpointing.save(f"{folder}/state", {"w": wnp.ones((3, 2)), "b": wnp.zeros(2)})
            checkpointing.restore(f"{folder}/state", like={"w": wnp.ones((3, 4)), "bias": wnp.zeros(4)})

    Right::

        import tempfile
        import weft.numpy as wnp
        from weft import checkpointing

        with tempfile.TemporaryDirectory() as folder:
            checkpointing.save(f"{folder}/state", {"w": wnp.ones((3, 2)), "b": wnp.zeros(2)})
            checkpointing.restore(f"{folder}/state", like={"w": wnp.ones((3, 2)), "b": wnp.zeros(2)})
    """


class JaxRuntimeError(WeftError, RuntimeError):
    """A compiled program failed at run time: a callback raised, or devices of a mesh deadlocked.

    The exception that the callback raised is the cause (`__cause__`) of this one. Devices deadlock if some of them take
    a branch with a collective and others do not: reduce the predicate with `psum`, so that all take the same branch.

    Wrong::

        import weft
        import weft.numpy as wnp

        def checked(x):
            if x < 0:
                raise ValueError("negative")
            return x

        @weft.jit
        def root(x):
            return wnp.sqrt(weft.pure_callback(checked, weft.ShapeDtypeStruct((), wnp.float32), x))

        root(-1.0).block_until_ready()

    Right::

        import weft
        import weft.numpy as wnp

        @weft.jit
        def root(x):
            return wnp.sqrt(wnp.maximum(x, 0.0))

        root(-1.0).block_until_ready()
    """


class FailedCheckError(JaxRuntimeError, ValueError):
    """A condition of `checkify.check` did not hold, or an error that `checkify` returned was thrown.

    The message is the one that was passed to `check`, with its values; the line is that of the check. `checkify` turns
    such an error into a value that the function returns and the caller inspects (`err.get()`) or raises
    (`err.throw()`). The class is also available as `checkify.JaxRuntimeError`.

    Wrong::

        import weft
        import weft.numpy as wnp
        from weft.experimental import checkify

        @weft.jit
        def root(x):
            checkify.check(x >= 0, "x must not be negative, got {}", x)
            return wnp.sqrt(x)

        root(-1.0).block_until_ready()

    Right::

        import weft
        import weft.numpy as wnp
        from weft.experimental import checkify

        def root(x):
            checkify.check(x >= 0, "x must not be negative, got {}", x)
            return wnp.sqrt(x)

        error, y = weft.jit(checkify.checkify(root))(-1.0)
        print(error.get())
    """


class IntegerDivisionError(WeftError, ZeroDivisionError):
    """With `checks` enabled, an integer was divided by zero in a compiled program.

    Integers have no infinity, so the result would be meaningless. The message has the line, the iteration of the
    enclosing loops and the element of the batch. Without checks the quotient is -1 and the remainder is the dividend,
    or 0 in `weft.numpy`.

    Wrong::

        import weft
        import weft.numpy as wnp

        with weft.checks("all"):
            weft.jit(lambda x, y: x // y)(wnp.arange(3), wnp.arange(3))

    Right::

        import weft
        import weft.numpy as wnp

        with weft.checks("all"):
            weft.jit(lambda x, y: x // wnp.where(y == 0, 1, y))(wnp.arange(3), wnp.arange(3))
    """


class NonFiniteValueError(WeftError, FloatingPointError):
    """With `checks`, `debug_nans` or `debug_infs` enabled, an operation returned a NaN or an infinity.

    The message has the operation and the line, and in compiled programs the iteration of the enclosing loops and the
    element of the batch. If the NaN is intended, disable the setting for that code. Note that `where` evaluates both of
    its branches, and that a NaN in the branch that is not selected still affects the gradient: replace the invalid
    argument, not the result.

    Wrong::

        import weft
        import weft.numpy as wnp

        with weft.debug_nans(True):
            wnp.log(wnp.float32(-1.0))

    Right::

        import weft
        import weft.numpy as wnp

        with weft.debug_nans(True):
            wnp.log(wnp.maximum(wnp.float32(-1.0), 1e-6))
    """


class KeyReuseError(JAXTypeError):
    """With `debug_key_reuse` enabled, a random key was used twice.

    The same key returns the same numbers, so two draws from one key are not independent. Split the key and use each
    part once.

    Wrong::

        import weft

        with weft.debug_key_reuse(True):
            key = weft.random.key(0)
            first = weft.random.normal(key)
            second = weft.random.normal(key)

    Right::

        import weft

        with weft.debug_key_reuse(True):
            first_key, second_key = weft.random.split(weft.random.key(0))
            first = weft.random.normal(first_key)
            second = weft.random.normal(second_key)
    """


# --------------------------------------------------------------------------------------------------------------- jaxprs


class JaxprTypeError(WeftError, TypeError):
    """A jaxpr is ill-typed, or is evaluated with arguments of other types than it was traced for.

    In a jaxpr every variable is defined once and before it is used, and the results of each equation have the types
    that the primitive computes. A jaxpr is valid only for the types it was traced with; trace again for other shapes.

    Wrong::

        import weft
        import weft.numpy as wnp

        program = weft.make_jaxpr(wnp.sin)(wnp.ones(3))
        weft.evaluate(program, wnp.ones(4))

    Right::

        import weft
        import weft.numpy as wnp

        program = weft.make_jaxpr(wnp.sin)(wnp.ones(3))
        weft.evaluate(program, wnp.ones(3))
    """


class JaxprSyntaxError(WeftError, ValueError):
    """The text of a jaxpr cannot be parsed.

    The message has the line and what was expected there. The parser accepts what the printer prints.

    Wrong::

        from weft.ir.parser import parse

        parse("{ lambda ; a:f32[3]. let b:f32[3] = sin in (b,) ")

    Right::

        from weft.ir.parser import parse

        parse("{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }")
    """
