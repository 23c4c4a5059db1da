"""Tokenizers, chat templates and the command line, with a tokenizer of bytes that the `tokenizers` package writes."""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import numpy as np
import pytest
import tokenizers

from tests.models.tiny import ENCODERS, make
from weft import models
from weft.errors import ArgumentError, FileFormatError
from weft.models import __main__ as command

FIELDS = {
    "model_type": "qwen3",
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "eos_token_id": 256,
}
TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}<|assistant|>"


def write_tokenizer(folder: pathlib.Path, size: int = 260) -> None:
    """Write a tokenizer whose tokens are bytes and a few words."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: i for i, letter in enumerate(alphabet)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens([f"<|{i}|>" for i in range(size - 256)])
    inner.save(str(folder / "tokenizer.json"))
    settings = {"chat_template": TEMPLATE, "eos_token": {"content": "<|0|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("model")
    make(FIELDS).save(path)
    write_tokenizer(path)
    return path


def test_texts_return(folder: pathlib.Path) -> None:
    tokenizer = models.load(folder).tokenizer
    for text in ("plain", "ünïcödé 🦊", "two\nlines"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    ids, mask = tokenizer.batch(["a", "abc"])
    assert ids.shape == (2, 3) and mask.tolist() == [[True, False, False], [True, True, True]]


def test_chat_templates(folder: pathlib.Path) -> None:
    tokenizer = models.load(folder).tokenizer
    ids = tokenizer.chat([{"role": "user", "content": "hi"}])
    assert tokenizer.decode(ids, special=True) == "<|user|>hi<|0|><|assistant|>"
    assert ids.count(256) == 1


def test_texts_that_stop(folder: pathlib.Path) -> None:
    model = models.load(folder)
    prompt = model.tokenizer.encode("hello")
    free = model.generate(prompt, 30, stop_tokens=())
    text = model.tokenizer.decode(free[5:])
    stop = text[6:8]
    out = model.tokenizer.decode(model.generate(prompt, 30, stop_tokens=(), stop=stop)[5:])
    assert stop in out and text.startswith(out) and len(out) <= text.index(stop) + len(stop) + 2


def test_texts_become_vectors(tmp_path: pathlib.Path) -> None:
    model = make({**ENCODERS["bert"], "vocab_size": 260})
    model.save(tmp_path)
    write_tokenizer(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    loaded = models.load(tmp_path)
    found = np.asarray(loaded.embed(["one", "a longer text"]))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    first = np.asarray(loaded([loaded.tokenizer.encode("one")]))[0, 0]
    np.testing.assert_allclose(found[0], first / np.linalg.norm(first), atol=1e-5)


def test_the_tokenizer_of_another_model(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileFormatError, match=r"tokenizer\.json"):
        models.Tokenizer(tmp_path)
    write_tokenizer(tmp_path, 300)
    with pytest.raises(ArgumentError, match="at most as many tokens as the model, 260"):
        models.Tokenizer(tmp_path, models.load(folder).config.vocabulary)


def test_a_conversation(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    lines = iter(["hello", "", "again"])

    def read(prompt: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    assert command.main(["chat", str(folder), "--max-new-tokens", "5", "--temperature", "0"]) == 0
    captured = capsys.readouterr()
    assert "100 %" in captured.err
    assert command.main(["chat", str(folder / "nonesuch")]) == 1
    assert "error: " in capsys.readouterr().err


def test_the_bar_ends(capsys: Any) -> None:
    out = io.StringIO()
    command.show_progress(1, 2, out)
    command.show_progress(2, 2, out)
    assert out.getvalue().endswith("100 %\n") and " 50 %" in out.getvalue()
