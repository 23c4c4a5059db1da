"""Errors of modules and their variables."""

from __future__ import annotations

from weft.base.errors.layout import WeftError


class ParameterShapeError(WeftError, ValueError):
    """A stored parameter does not have the shape that the module expects.

    The message has the path of the module. Either its input has another shape than at `init`, or its configuration has
    changed since; create new parameters with `init`. In haiku the stored parameter must have the shape that is passed
    to `hk.get_parameter`.

    Wrong::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        variables = nn.Dense(3).init(weft.random.key(0), wnp.ones((1, 4)))
        nn.Dense(3).apply(variables, wnp.ones((1, 5)))

    Right::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        variables = nn.Dense(3).init(weft.random.key(0), wnp.ones((1, 4)))
        nn.Dense(3).apply(variables, wnp.ones((8, 4)))
    """


class ParameterNotFoundError(WeftError, ValueError, LookupError):
    """A parameter or variable that a module needs was not passed to `apply`.

    `apply` does not create parameters: it looks up those that `init` created, by the path of the module. The message
    lists the available ones. Often the outer dict is missing (`{"params": params}`), or a module has another name than
    at `init`. In haiku parameters are `{module path: {name: array}}`, without an outer dict.

    Wrong::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        variables = nn.Dense(3).init(weft.random.key(0), wnp.ones((1, 4)))
        nn.Dense(3).apply({"weights": variables["params"]}, wnp.ones((1, 4)))

    Right::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        variables = nn.Dense(3).init(weft.random.key(0), wnp.ones((1, 4)))
        nn.Dense(3).apply({"params": variables["params"]}, wnp.ones((1, 4)))
    """


class MissingRngError(WeftError, ValueError):
    """A module needs random numbers, but no key was passed for its rng stream.

    Each use of randomness names a stream: parameters use `params`, dropout uses `dropout`. Pass a key for each stream
    that is used to `init` and `apply`. Haiku has one stream; its key is the argument `rng` of `init` and `apply`.

    Wrong::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        nn.Dropout(0.5, deterministic=False).apply({}, wnp.ones(4))

    Right::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        nn.Dropout(0.5, deterministic=False).apply({}, wnp.ones(4), rngs={"dropout": weft.random.key(0)})
    """


class ImmutableCollectionError(WeftError, ValueError):
    """A module writes to a variable of a collection that is not mutable in this call.

    `apply` returns only the result unless `mutable` lists the collections that change, such as the running averages of
    batch normalization; then it returns the result and these collections. In haiku, transform a function with state by
    `hk.transform_with_state`, whose `apply` takes and returns the state.

    Wrong::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        norm = nn.BatchNorm(use_running_average=False)
        variables = norm.init(weft.random.key(0), wnp.ones((8, 4)))
        norm.apply(variables, wnp.ones((8, 4)))

    Right::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        norm = nn.BatchNorm(use_running_average=False)
        variables = norm.init(weft.random.key(0), wnp.ones((8, 4)))
        result, changed = norm.apply(variables, wnp.ones((8, 4)), mutable=["batch_stats"])
    """


class NameInUseError(WeftError, ValueError):
    """Two submodules, or a submodule and a parameter, of one module have the same name.

    The name is the path of their parameters, so both would share them. To share parameters, create the submodule once
    and call it twice; otherwise use another name, or none, and a unique one is generated. Haiku makes names unique by
    appending numbers, so there this happens with explicit numbers, or if a module stored in an earlier run is used next
    to a new one with the same path.

    Wrong::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        class Two(nn.Module):
            @nn.compact
            def __call__(self, x):
                return nn.Dense(4, name="layer")(nn.Dense(4, name="layer")(x))

        Two().init(weft.random.key(0), wnp.ones((1, 4)))

    Right::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        class Two(nn.Module):
            @nn.compact
            def __call__(self, x):
                return nn.Dense(4, name="second")(nn.Dense(4, name="first")(x))

        Two().init(weft.random.key(0), wnp.ones((1, 4)))
    """


class UnboundModuleError(WeftError, ValueError):
    """A module was called, or its variables were accessed, outside of `init` and `apply`.

    Outside of `init` and `apply` a module has no parameters. Call it through `apply` with the variables that `init`
    returned, or `bind` it to them. Haiku modules can only be used inside a function that is transformed by
    `hk.transform`.

    Wrong::

        import weft.linen as nn
        import weft.numpy as wnp

        nn.Dense(3)(wnp.ones((1, 4)))

    Right::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        variables = nn.Dense(3).init(weft.random.key(0), wnp.ones((1, 4)))
        nn.Dense(3).apply(variables, wnp.ones((1, 4)))
    """


class ModuleDefinitionError(WeftError, ValueError, TypeError):
    """A module class defines its submodules incorrectly.

    Create submodules either in `setup` or in the one method marked `@compact`, not in both and not in other methods,
    and do not change attributes afterwards. In haiku, `__init__` must call that of `hk.Module`, which sets the name of
    the module.

    Wrong::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        class Model(nn.Module):
            def __call__(self, x):
                return nn.Dense(3)(x)

        Model().init(weft.random.key(0), wnp.ones((1, 4)))

    Right::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        class Model(nn.Module):
            @nn.compact
            def __call__(self, x):
                return nn.Dense(3)(x)

        Model().init(weft.random.key(0), wnp.ones((1, 4)))
    """


class ScopeLeakError(WeftError, ValueError):
    """A module is used after its call has ended, or inside a transformation that is not lifted.

    A transformation such as `scan` must know every variable that its function writes and every key that it draws;
    otherwise values written in an iteration of the loop are lost, and a key is the same in each iteration. Use the
    lifted transformation (`nn.scan`, `nn.jit`, ..., and in haiku `hk.scan`, `hk.remat`, ...), and do not use a bound
    module after `apply` has returned.

    Wrong::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        saved = []

        class Model(nn.Module):
            @nn.compact
            def __call__(self, x):
                saved.append(nn.Dense(3))
                return saved[-1](x)

        Model().init(weft.random.key(0), wnp.ones((1, 4)))
        saved[-1](wnp.ones((1, 4)))

    Right::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        model = nn.Dense(3)
        bound = model.bind(model.init(weft.random.key(0), wnp.ones((1, 4))))
        bound(wnp.ones((1, 4)))
    """
