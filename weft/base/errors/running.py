"""What goes wrong in calls of jitted functions, in programs that run, and in jaxprs as text or data."""

from __future__ import annotations

from weft.base.errors.layout import WeftError
from weft.base.errors.tracing import JAXTypeError

# ------------------------------------------------------------------------------------------------------ jit and running


class UnhashableStaticArgumentError(WeftError, ValueError):
    """A static argument of `jit` cannot be hashed.

    The value of a static argument is part of the key under which the traced program is kept, so it needs a hash and
    an equality that never change. Pass a tuple for a list, and arrays as ordinary arguments.

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

    `donate_argnums` lets the function write its result into the memory of the argument, which holds nothing any more
    afterwards. Use the result, or do not donate.

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
    """The system gives no more memory for an array, or for the temporaries of a program.

    The message says how much was asked for and for what, what else the program takes, and the largest of its buffers
    with their lines. Memory that Weft keeps for later has been given back by then. Work on parts of the data
    (`lax.map`, smaller batches), donate arguments that are not needed any more (`donate_argnums`), or wrap what is
    differentiated in `weft.checkpoint`.

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
    """A file to load arrays from is not what it should be: cut short, changed, or another kind of file.

    The message names the file and the reason. Nothing of such a file is used; get it anew from where it came.

    Wrong::

        from weft.modules import safetensors

        data = safetensors.serialize({"w": 1.0})
        safetensors.deserialize(data[:-1])

    Right::

        from weft.modules import safetensors

        data = safetensors.serialize({"w": 1.0})
        safetensors.deserialize(data)
    """


class JaxRuntimeError(WeftError, RuntimeError):
    """A compiled program failed while it ran: a callback raised.

    The error surfaces where the result is used, which may be later than the call. The exception that a callback
    raised is the cause (`__cause__`) of this one.

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


class IntegerDivisionError(WeftError, ZeroDivisionError):
    """With `checks` on, an integer was divided by zero while a program ran.

    Integers have no infinity: what comes out of the division is a number that means nothing. The message names the
    line, the iteration of the loops around it and the element of the batch. Without checks the quotient is -1 and the
    remainder is the dividend, or 0 in `weft.numpy`.

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
    """With `checks`, `debug_nans` or `debug_infs` on, an operation gave a NaN or an infinity.

    The message names the operation and the line, in compiled programs also the iteration of the loops around it and
    the element of the batch. If the NaN is meant, turn the setting off around it. Mind that
    `where` computes both of its branches, and that a NaN in the one not chosen still reaches the gradient: make the
    argument safe, not the result.

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
    """With `debug_key_reuse` on, a random key was used twice.

    The same key gives the same numbers, so two draws from one key are not independent. Split the key and use each
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
    """A jaxpr does not follow its own rules, or is evaluated with arguments of other types than it was traced for.

    In a jaxpr every variable is defined once and before it is used, and each equation's results have the types that
    its primitive says. A jaxpr is for the types it was made with; other shapes need another trace.

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
    """The text of a jaxpr cannot be read.

    The message shows the line and what was expected there. The parser reads what the printer writes.

    Wrong::

        from weft.ir.parser import parse

        parse("{ lambda ; a:f32[3]. let b:f32[3] = sin in (b,) ")

    Right::

        from weft.ir.parser import parse

        parse("{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }")
    """
