"""Many callbacks as one: which hooks are overridden is found once, so that the others cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft.keras.callbacks.base import Callback, Logs, overrides
from weft.keras.callbacks.history import History
from weft.keras.callbacks.progress import ProgbarLogger

HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))
# A hook that is called through another one: overriding either makes the first run.
ALIASES = {"on_train_batch_begin": "on_batch_begin", "on_train_batch_end": "on_batch_end"}


class CallbackList(Callback):
    """Calls the hooks of many callbacks, in their order.

    Args:
        callbacks: callbacks, or lists of them.
        add_history, add_progbar: append a `History`, a `ProgbarLogger`, unless there is one.
        model: given to all of them.
        **params: given to all of them (`verbose`, `epochs`, `steps`).

    >>> from weft.keras.callbacks import CallbackList, LambdaCallback
    >>> many = CallbackList([LambdaCallback(on_epoch_begin=lambda epoch, logs: print("epoch", epoch))])
    >>> many.on_epoch_begin(3)
    epoch 3
    >>> many.has("on_train_batch_end")
    False
    """

    def __init__(
        self,
        callbacks: Any = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Any = None,
        **params: Any,
    ) -> None:
        super().__init__()
        self.callbacks: list[Callback] = list(_flat(callbacks))
        for callback in self.callbacks:
            if isinstance(callback, type) or not hasattr(callback, "on_train_begin"):
                raise TypeError(
                    f"callbacks must be `Callback` objects, received {callback!r}"
                    + (": write `()` after its name to create one" if isinstance(callback, type) else "")
                )
        self.history: History | None = next((c for c in self.callbacks if isinstance(c, History)), None)
        if add_progbar and not any(isinstance(c, ProgbarLogger) for c in self.callbacks):
            self.callbacks.append(ProgbarLogger())
        if add_history and self.history is None:
            self.history = History()
            self.callbacks.append(self.history)
        self._hooks: dict[str, list[Callable[..., Any]]] = {}
        self.find_hooks()
        if model is not None:
            self.set_model(model)
        if params:
            self.set_params(params)

    def find_hooks(self) -> None:
        """Find again which hooks are overridden, after the list has changed."""
        self._hooks = {hook: [getattr(c, hook) for c in self.callbacks if _runs(c, hook)] for hook in HOOKS}

    def append(self, callback: Callback) -> None:
        """Add a callback at the end."""
        self.callbacks.append(callback)
        self.find_hooks()

    def has(self, *hooks: str) -> bool:
        """Return whether any callback overrides one of these hooks."""
        return any(self._hooks[hook] for hook in hooks)

    def needs_every_batch(self, mode: str) -> bool:
        """Return whether a callback must be called between two batches of `mode` (`train`, `test` or `predict`)."""
        hooks = [f"on_{mode}_batch_begin", f"on_{mode}_batch_end"]
        return any(_runs(c, hook) for c in self.callbacks for hook in hooks if not getattr(c, "async_safe", False))

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params
        for callback in self.callbacks:
            callback.set_params(params)

    def set_model(self, model: Any) -> None:
        self._model = model
        if self.history is not None:
            model.history = self.history
        for callback in self.callbacks:
            callback.set_model(model)

    def get_state(self) -> Logs:
        """Return the states of the callbacks that have one, by class name and position among those of its class."""
        return {name: state for name, callback in self._with_names() if (state := callback.get_state())}

    def set_state(self, state: Logs) -> None:
        for name, callback in self._with_names():
            if name in state:
                callback.set_state(state[name])

    def _with_names(self) -> Iterable[tuple[str, Callback]]:
        seen: dict[str, int] = {}
        for callback in self.callbacks:
            if hasattr(callback, "get_state"):
                name = type(callback).__name__
                seen[name] = seen.get(name, 0) + 1
                yield f"{name}_{seen[name]}", callback

    def __len__(self) -> int:
        return len(self.callbacks)

    def __iter__(self) -> Any:
        return iter(self.callbacks)


def _runs(callback: Callback, hook: str) -> bool:
    return overrides(callback, hook) or (hook in ALIASES and overrides(callback, ALIASES[hook]))


def _flat(callbacks: Any) -> Iterable[Any]:
    if callbacks is None:
        return
    if isinstance(callbacks, CallbackList):
        yield from callbacks.callbacks
    elif isinstance(callbacks, list | tuple):
        for callback in callbacks:
            yield from _flat(callback)
    else:
        yield callbacks


def _forward_at_ends(hook: str) -> Callable[..., None]:
    def call(self: CallbackList, logs: Logs | None = None) -> None:
        for own in self._hooks[hook]:
            own({} if logs is None else logs)

    return call


def _forward_in_epochs(hook: str) -> Callable[..., None]:
    def call(self: CallbackList, epoch: int, logs: Logs | None = None) -> None:
        for own in self._hooks[hook]:
            own(epoch, {} if logs is None else logs)

    return call


def _forward_in_batches(hook: str) -> Callable[..., None]:
    def call(self: CallbackList, batch: int, logs: Logs | None = None) -> None:
        for own in self._hooks[hook]:
            own(batch, {} if logs is None else logs)

    return call


for _hook in HOOKS:
    _of_a_call = _hook.split("_")[1] in ("train", "test", "predict") and _hook.count("_") == 2
    _in_epochs = _forward_in_epochs if "epoch" in _hook else _forward_in_batches
    _call = _forward_at_ends(_hook) if _of_a_call else _in_epochs(_hook)
    _call.__name__, _call.__doc__ = _hook, getattr(Callback, _hook).__doc__
    setattr(CallbackList, _hook, _call)
