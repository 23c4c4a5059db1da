"""Tokenizers of the `tokenizers` package, with chat templates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.lazy import is_importable, lazy
from weft.errors import ArgumentError, FileFormatError
from weft.models.families import read_json

tokenizers = lazy("tokenizers")
jinja2 = lazy("jinja2")
sandbox = lazy("jinja2.sandbox")


class Tokenizer:
    """Text to tokens and back, by the `tokenizer.json` of a folder.

    Args:
        folder: a folder with a `tokenizer.json`.
        vocabulary: the number of tokens of the model that it is for, or None.
    """

    def __init__(self, folder: str | os.PathLike[str], vocabulary: int | None = None) -> None:
        self.folder = os.fspath(folder)
        path = os.path.join(self.folder, "tokenizer.json")
        if not os.path.isfile(path):
            raise FileFormatError("A folder with a tokenizer must have a tokenizer.json.", received=self.folder)
        if not is_importable("tokenizers"):
            raise ArgumentError("A tokenizer needs the package tokenizers.", fix="pip install tokenizers")
        self.inner = tokenizers.Tokenizer.from_file(path)
        size = self.inner.get_vocab_size()
        if vocabulary is not None and size > vocabulary:
            raise ArgumentError(
                f"The tokenizer of a model must have at most as many tokens as the model, {vocabulary}.",
                received=f"{size} in {path}",
                fix="the tokenizer that belongs to the model",
            )
        settings = os.path.join(self.folder, "tokenizer_config.json")
        self.settings: dict[str, Any] = read_json(settings) if os.path.isfile(settings) else {}

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the tokens of a text.

        Args:
            text: the text.
            special: whether the tokens that begin and end a text are added.

        Returns:
            A list of integers.
        """
        return list(self.inner.encode(text, add_special_tokens=special).ids)

    def batch(self, texts: Sequence[str], longest: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of several texts, padded on the right.

        Args:
            texts: the texts.
            longest: the most tokens of a text; further ones are cut off.

        Returns:
            Integers (batch, tokens), and booleans that are false for padding.
        """
        rows = [self.encode(text)[:longest] for text in texts]
        ids = np.zeros((len(rows), max(1, *map(len, rows))), np.int32)
        mask = np.zeros(ids.shape, bool)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, True
        return ids, mask

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """Return the text of tokens.

        Args:
            ids: integers.
            special: whether special tokens are part of the text.

        Returns:
            A string.
        """
        return str(self.inner.decode([int(i) for i in ids], skip_special_tokens=not special))

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the tokens of a conversation, up to where the model answers.

        Args:
            messages: dicts with a "role" (system, user or assistant) and a "content".

        Returns:
            A list of integers.
        """
        template = self.template
        if template is None:
            text = "".join(f"{each['role'].capitalize()}: {each['content']}\n" for each in messages) + "Assistant:"
            return self.encode(text)
        if not is_importable("jinja2"):
            raise ArgumentError("The chat template of a tokenizer needs the package jinja2.", fix="pip install jinja2")
        environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        special = {name: _text(self.settings.get(name)) for name in ("bos_token", "eos_token", "pad_token")}
        text = environment.from_string(template).render(messages=messages, add_generation_prompt=True, **special)
        return self.encode(text, special=False)

    @property
    def template(self) -> str | None:
        """Chat template of the folder."""
        path = os.path.join(self.folder, "chat_template.jinja")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return file.read()
        found = self.settings.get("chat_template")
        return found if isinstance(found, str) else None


def _refuse(message: str) -> None:
    raise ArgumentError(f"The messages must be those that the chat template accepts; it says: {message}")


def _text(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else token or ""
