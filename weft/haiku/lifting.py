"""Lifting: storing parameters and state of an inner transformed function with those of the outer one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import weft
from weft.errors import ArgumentError, NameInUseError, ParameterNotFoundError, user_line
from weft.haiku.frames import Frame, boundaries, current_frame
from weft.haiku.module import Module, transparent

Tree = dict[str, dict[str, Any]]


def _add(frame: Frame, collection: str, prefix: str, tree: Mapping[str, Any], allow_reuse: bool) -> Tree:
    """Insert an inner tree into an outer collection; with `allow_reuse` existing values are kept and returned."""
    outer = frame.call.collections.setdefault(collection, {})
    found: Tree = {}
    for path, values in tree.items():
        full = f"{prefix}{path}"
        if full in outer and not allow_reuse:
            raise NameInUseError(
                f"A lifted function makes module {full!r}, which is there already.",
                at=user_line(),
                fix=["allow_reuse=True   to share its parameters", "hk.lift(init, name='...')   for a path of its own"],
            )
        there = outer.setdefault(full, {})
        found[path] = {name: there.setdefault(name, value) for name, value in values.items()}
    return found


def _part(frame: Frame, collection: str, prefix: str) -> Tree:
    """Return the part of an outer collection below a prefix, by inner paths."""
    tree = frame.call.collections.get(collection, {})
    return {
        path.removeprefix(prefix): dict(values) for path, values in tree.items() if path.startswith(prefix) and values
    }


class _Lifted(Module):
    """Module that runs an inner `init` for its parameters, or finds them in `apply`."""

    def __init__(self, init_fn: Callable[..., Any], allow_reuse: bool, name: str):
        super().__init__(name)
        self._init_fn = init_fn
        self._allow_reuse = allow_reuse
        self.lifting_prefix = self.module_name

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        frame = current_frame("lift")
        prefix = f"{self.module_name}/"
        if frame.is_initializing:
            params, state = self._init_fn(*args, **kwargs)
            return _store(frame, prefix, params, state, self._allow_reuse)
        return _part(frame, "params", prefix), _part(frame, "state", prefix)

    @transparent
    def update(self, state: Mapping[str, Any]) -> None:
        """Write the state after the inner `apply`."""
        _update(current_frame("lift_with_state"), f"{self.module_name}/", state)


def _store(frame: Frame, prefix: str, params: Any, state: Any, allow_reuse: bool) -> tuple[Any, Any]:
    found = _add(frame, "params", prefix, params, allow_reuse) if params else {}
    if not state:
        return found, {}
    _add(frame, "initial", prefix, state, allow_reuse)
    return found, _add(frame, "state", prefix, state, allow_reuse)


def _update(frame: Frame, prefix: str, state: Mapping[str, Any]) -> None:
    for path, values in state.items():
        frame.root.child(f"{prefix}{path}").mutable_node("state").update(values)


class LiftWithStateUpdater:
    """Receiver of a lifted function's state after its `apply`: `update(state)`, or `ignore_update()`."""

    def __init__(self, name: str | None, write: Callable[[Any], None]):
        self._name = name
        self._write = write
        self._run = current_frame("lift_with_state").run
        self._is_done = False

    @property
    def is_done(self) -> bool:
        """Whether `update` or `ignore_update` was called."""
        return self._is_done

    def update(self, state: Any) -> None:
        """Keep this state in the outer function."""
        self._finish("update")
        self._write(state)

    def ignore_update(self) -> None:
        """Keep the state as it was."""
        self._finish("ignore_update")

    def _finish(self, what: str) -> None:
        """Record that the update is done; raise for a second update, or in another run than that of the lift."""
        if self._is_done or current_frame(what).run is not self._run:
            where = "is used a second time" if self._is_done else "is used inside of another transformed function"
            raise ArgumentError(
                f"The updater of hk.lift_with_state(name={self._name!r}) {where}: it must be used once, in the "
                "function that made it.",
                at=user_line(),
                received=f"updater.{what}(...)",
                fix="lifted, updater = hk.lift_with_state(init)   for each update",
            )
        self._is_done = True


def _check_done(frame: Frame, updater: LiftWithStateUpdater) -> None:
    """Raise at the end of a run unless the state of lifted functions was updated."""

    def check() -> None:
        if not updater.is_done:
            raise ParameterNotFoundError(
                f"The state of hk.lift_with_state(name={updater._name!r}) was never updated.",
                at=user_line(),
                fix=["updater.update(state)   with the state after the inner apply", "updater.ignore_update()"],
            )

    frame.call.flags["checks"].append(check)


def lift_with_state(
    init_fn: Callable[..., tuple[Any, Any]], *, allow_reuse: bool = False, name: str = "lifted"
) -> tuple[Callable[..., tuple[Any, Any]], LiftWithStateUpdater]:
    """Store parameters and state of `init_fn` below `name`: a function that returns both, and its updater."""
    frame = current_frame("lift_with_state")
    lifted = _Lifted(init_fn, allow_reuse, name)
    updater = LiftWithStateUpdater(name, lifted.update)
    _check_done(frame, updater)
    return lifted, updater


def lift(init_fn: Callable[..., Any], *, allow_reuse: bool = False, name: str = "lifted") -> Callable[..., Any]:
    """Store the parameters of `init_fn` below `name`: a function that makes them while initializing, and finds them."""
    current_frame("lift")
    lifted = _Lifted(lambda *args, **kwargs: (init_fn(*args, **kwargs), {}), allow_reuse, name)
    return lambda *args, **kwargs: lifted(*args, **kwargs)[0]


def transparent_lift_with_state(
    init_fn: Callable[..., tuple[Any, Any]], *, allow_reuse: bool = False
) -> tuple[Callable[..., tuple[Any, Any]], LiftWithStateUpdater]:
    """Lift as `lift_with_state`, without a name: inner modules belong to the running module."""
    frame = current_frame("transparent_lift_with_state")
    prefix = "" if frame.module is None else f"{frame.path}/"
    updater = LiftWithStateUpdater(
        None, lambda state: _update(current_frame("transparent_lift_with_state"), prefix, state)
    )
    _check_done(frame, updater)

    def run(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        frame = current_frame("transparent_lift_with_state")
        before, frame.lifting = frame.lifting, prefix.removesuffix("/")
        try:
            return _run_transparent(frame, prefix, *args, **kwargs)
        finally:
            frame.lifting = before

    def _run_transparent(frame: Frame, prefix: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with boundaries.push(frame.id + 1):
            if frame.is_initializing:
                params, state = init_fn(*args, **kwargs)
                return _store(frame, prefix, params, state, allow_reuse)
            params, state = weft.eval_shape(init_fn, *_with_key(args), **kwargs)
        return _find(frame, "params", prefix, params), _find(frame, "state", prefix, state)

    return run, updater


def transparent_lift(init_fn: Callable[..., Any], *, allow_reuse: bool = False) -> Callable[..., Any]:
    """Lift as `lift`, without a name: inner modules belong to the running module."""
    lifted, updater = transparent_lift_with_state(
        lambda *args, **kwargs: (init_fn(*args, **kwargs), {}), allow_reuse=allow_reuse
    )
    updater.ignore_update()
    return lambda *args, **kwargs: lifted(*args, **kwargs)[0]


def _with_key(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace a key of None by some key, for an `init` that is traced for its shapes only."""
    if args and args[0] is None:
        return (weft.random.PRNGKey(0), *args[1:])
    return args


def _find(frame: Frame, collection: str, prefix: str, shapes: Mapping[str, Any]) -> Tree:
    """Return the values of an outer collection that an inner function would create."""
    tree = frame.call.collections.get(collection, {})
    found: Tree = {}
    for path, values in shapes.items():
        there = tree.get(f"{prefix}{path}", {})
        missing = [name for name in values if name not in there]
        if missing:
            raise ParameterNotFoundError(
                f"Module {prefix + path!r} has no {', '.join(map(repr, missing))} in {collection}.",
                at=user_line(),
                received=f"in {prefix + path!r}: {', '.join(there) or 'nothing'}",
                fix="pass what init returned: f.apply(params, key, ...) with params = f.init(key, ...)",
            )
        found[path] = {name: there[name] for name in values}
    return found
