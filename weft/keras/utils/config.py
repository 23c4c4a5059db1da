"""Settings of a program as an object."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any

from weft.errors import ArgumentError


class Config:
    """Settings that are read as attributes or as entries, and may be frozen.

    Args:
        **kwargs: the settings.

    Example:
        >>> from weft import keras
        >>> config = keras.utils.Config(rate=0.1)
        >>> config.layers = 3
        >>> config["layers"], config.rate
        (3, 0.1)
        >>> config.to_json()
        '{"rate": 0.1, "layers": 3}'
    """

    _settings: dict[str, Any]
    _frozen: bool

    def __init__(self, **kwargs: Any) -> None:
        object.__setattr__(self, "_settings", dict(kwargs))
        object.__setattr__(self, "_frozen", False)

    def freeze(self) -> None:
        """Refuse changes from now on."""
        object.__setattr__(self, "_frozen", True)

    def unfreeze(self) -> None:
        """Accept changes again."""
        object.__setattr__(self, "_frozen", False)

    @property
    def frozen(self) -> bool:
        """Whether changes are refused."""
        return self._frozen

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a dict."""
        return dict(self._settings)

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(self._settings)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting, or a default."""
        return self._settings.get(name, default)

    def keys(self) -> KeysView[str]:
        """Return the names of the settings."""
        return self._settings.keys()

    def values(self) -> ValuesView[Any]:
        """Return the values of the settings."""
        return self._settings.values()

    def items(self) -> ItemsView[str, Any]:
        """Return the names and values of the settings."""
        return self._settings.items()

    def pop(self, name: str, *default: Any) -> Any:
        """Remove a setting and return it."""
        self._check()
        return self._settings.pop(name, *default)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Change several settings."""
        self._check()
        self._settings.update(*args, **kwargs)

    def _check(self) -> None:
        if self._frozen:
            raise ArgumentError("The config is frozen and cannot be changed.", fix="config.unfreeze()")

    def __setitem__(self, name: str, value: Any) -> None:
        self._check()
        self._settings[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._settings[name]

    def __delitem__(self, name: str) -> None:
        self._check()
        del self._settings[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getattr__(self, name: str) -> Any:
        settings = object.__getattribute__(self, "__dict__").get("_settings", {})
        if name not in settings:
            raise AttributeError(f"the config has no setting {name!r}")
        return settings[name]

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._settings

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return f"<Config {self._settings}>"
