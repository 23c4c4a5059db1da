"""What goes wrong between modules and the variables they own."""

from __future__ import annotations

from weft.base.errors.layout import WeftError


class ParameterShapeError(WeftError, ValueError):
    """A stored parameter has another shape than the module that reads it would give it.

    Parameters belong to the module with the sizes they were made with. The message names the module's path: either it
    got another input than at `init`, or its sizes have changed since; make new parameters with `init`. In haiku the
    stored one must have the shape given to `hk.get_parameter`.

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
    """A module looks for a parameter or variable that is not among those given to `apply`.

    `apply` makes no parameters, it finds those that `init` made, by the path of the module. The message lists what is
    there: often the outer dict is missing (`{"params": params}`), or a module has another name than at `init`. In haiku
    parameters are `{module path: {name: array}}`, without an outer dict.

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
    """A module needs random numbers, and no key was given for the stream it draws from.

    Each use of randomness names a stream: parameters draw from `params`, dropout from `dropout`. Give `init` and
    `apply` a key for each stream that is used. Haiku has one stream; its key is the argument `rng` of `init` and
    `apply`.

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
    """A module writes a variable of a collection that the call does not say it may write.

    `apply` returns only the result unless `mutable` names the collections that change, such as the running averages
    of batch normalization; then it returns the result and these collections. In haiku, a function with state is
    transformed by `hk.transform_with_state`, and its `apply` takes and returns the state.

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

    The name is the place of their parameters in the tree, so both would share it. To share on purpose, make the
    submodule once and call it twice; else give another name, or none, and one is found. In haiku names are numbered, so
    this happens with numbers of one's own, and with a module kept from an earlier run beside a new one of its path.

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
    """A module was called, or asked for its variables, without having any.

    A module outside of `init` and `apply` is only a description: it has no parameters. Call it through `apply` with
    the variables that `init` made, or `bind` it to them. Haiku's modules live inside of a function given to
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
    """A module class is written in a way that leaves open which submodules it has.

    Submodules are made in `setup`, or in the one method marked `@compact`; not in both ways at once, in no other
    method, and attributes do not change afterwards. In haiku, `__init__` must call that of `hk.Module`, which finds the
    module's name.

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
    """A module is used where its variables are out of reach: after its call, or inside a transformation it is not in.

    A transformation such as `scan` must see every variable that its function writes and every key that it draws: else
    what is written in a turn of the loop is lost, and a key is the same in each turn. Use the lifted one (`nn.scan`,
    `nn.jit`, ..., and in haiku `hk.scan`, `hk.remat`, ...); do not keep a bound module after `apply` has returned.

    Wrong::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        kept = []

        class Model(nn.Module):
            @nn.compact
            def __call__(self, x):
                kept.append(nn.Dense(3))
                return kept[-1](x)

        Model().init(weft.random.key(0), wnp.ones((1, 4)))
        kept[-1](wnp.ones((1, 4)))

    Right::

        import weft
        import weft.linen as nn
        import weft.numpy as wnp

        model = nn.Dense(3)
        bound = model.bind(model.init(weft.random.key(0), wnp.ones((1, 4))))
        bound(wnp.ones((1, 4)))
    """
