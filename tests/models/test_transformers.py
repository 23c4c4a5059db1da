"""The same numbers as the `transformers` package: logits, features, greedy tokens, gradients, and files both ways.

`make test-models` runs this file in an environment of its own; elsewhere it is left out.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import weft
import weft.numpy as wnp
from tests.models import tiny
from weft import models

torch.set_num_threads(1)
CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
}


def peer(fields: dict[str, Any], spread: float = 0.2) -> Any:
    """Return a model of `transformers` all of whose parameters are random."""
    family = fields["model_type"]
    name = fields.get("architectures", [CLASSES.get(family)])[0]
    rest = {key: value for key, value in fields.items() if key not in ("model_type", "architectures")}
    if "id2label" in rest:
        rest["id2label"] = {int(key): value for key, value in rest["id2label"].items()}
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.AutoConfig.for_model(family, **rest)).eval()
    with torch.no_grad():
        for path, value in [*model.named_parameters(), *model.named_buffers()]:
            if value.is_floating_point() and "inv_freq" not in path and "embed_scale" not in path:
                value.add_(spread * torch.randn(value.shape))
                if "running_var" in path:
                    value.abs_().add_(0.5)
    return model


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function from a name to a model of `transformers` and the one that its files load as."""
    loaded: dict[str, Any] = {}

    def pair(name: str) -> tuple[Any, models.Model]:
        if name not in loaded:
            model = peer(tiny.ALL[name])
            folder = tmp_path_factory.mktemp(name)
            model.save_pretrained(folder)
            loaded[name] = model, models.load(folder)
        return loaded[name]

    return pair


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else np.asarray(want)
    assert np.shape(got) == want.shape
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=tolerance * max(1.0, float(np.abs(want).max())))


def run(model: Any, **inputs: Any) -> Any:
    with torch.no_grad():
        return model(**{name: torch.tensor(value) for name, value in inputs.items()})


@pytest.mark.parametrize("name", tiny.DECODERS)
def test_logits_of_decoders(name: str, pairs: Any) -> None:
    theirs, ours = pairs(name)
    ids = tiny.tokens(2, 40)
    close(ours(ids), run(theirs, input_ids=ids.astype(np.int64)).logits)


@pytest.mark.parametrize("name", tiny.DECODERS)
def test_greedy_tokens(name: str, pairs: Any) -> None:
    theirs, ours = pairs(name)
    prompts = [tiny.tokens(n, seed=n) for n in (20, 11)]
    ids, starts = models.generation.pad_prompts(prompts, 0)
    mask = torch.tensor(np.arange(20)[None] >= starts[:, None]).long()
    want = theirs.generate(
        torch.tensor(ids).long(),
        attention_mask=mask,
        max_new_tokens=64,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    np.testing.assert_array_equal(ours.generate(prompts, max_new_tokens=64, stop_tokens=())[:, 20:], want[:, 20:])


@pytest.mark.parametrize("name", tiny.DECODERS)
def test_gradients(name: str, pairs: Any) -> None:
    theirs, ours = pairs(name)
    ids = tiny.tokens(2, 16)
    theirs.zero_grad()
    theirs(torch.tensor(ids).long(), labels=torch.tensor(ids).long()).loss.backward()
    gradient = weft.jit(weft.grad(lambda p: models.next_token_loss(ours, p, wnp.asarray(ids))))(ours.params)
    found = models.parameters.flat(gradient, ours.config)
    table = models.families.find_names(ours.config)
    grads = {path: value.grad for path, value in theirs.named_parameters()}
    compared = 0
    for tensor in models.names.write_tensors(found, table, ours.config):
        want = grads.get(tensor.name)
        if want is not None:  # experts are stored together there
            parts = [found[piece.path]() for piece in tensor.pieces]
            merged = np.concatenate(parts) if len(parts) > 1 else parts[0]
            close(merged.T if tensor.pieces[0].is_transposed else merged, want, 1e-4)
            compared += 1
    assert compared >= 10


@pytest.mark.parametrize("name", tiny.ENCODERS)
def test_encoders(name: str, pairs: Any) -> None:
    theirs, ours = pairs(name)
    ids = tiny.tokens(2, 12)
    mask = np.arange(12)[None] < np.array([[12], [7]])
    ids[~mask] = theirs.config.pad_token_id
    found = run(theirs, input_ids=ids.astype(np.int64), attention_mask=mask.astype(np.int64))
    want, got = found[0], ours(ids, mask=mask)
    if want.ndim == 3:
        want, got = want.numpy()[mask], np.asarray(got)[mask]
    close(got, want)
    if ours.config.task == "features":
        states = run(theirs, input_ids=ids.astype(np.int64), attention_mask=mask.astype(np.int64))[0]
        weights = torch.tensor(mask).float()[..., None]
        mean = torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1))
        close(ours.embed(ids, mask), mean)


@pytest.mark.parametrize("name", tiny.IMAGES)
def test_images(name: str, pairs: Any) -> None:
    theirs, ours = pairs(name)
    size = 16 if name.startswith("vit") else 40
    pictures = tiny.images(2, size)
    close(ours(pictures), run(theirs, pixel_values=pictures)[0], 2e-5)


@pytest.mark.parametrize("name", tiny.PAIRS)
def test_texts_and_images(name: str, pairs: Any) -> None:
    theirs, ours = pairs(name)
    ids, pictures = tiny.tokens(3, 9), tiny.images(2)
    ids[:, 6] = 1  # the token that ends a text
    found = run(theirs, input_ids=ids.astype(np.int64), pixel_values=pictures)
    close(ours(ids, pictures), found.logits_per_image)
    close(ours.embed(ids), found.text_embeds)
    close(ours.encode_images(pictures), found.image_embeds)


@pytest.mark.parametrize("name", tiny.SEQUENCES)
def test_encoders_with_decoders(name: str, pairs: Any) -> None:
    theirs, ours = pairs(name)
    source = tiny.source(tiny.SEQUENCES[name])
    ids = tiny.tokens(2, 9, seed=1)
    if name == "whisper":
        inputs = {"input_features": source}
    else:
        mask = np.arange(13)[None] < np.array([[13], [8]])
        inputs = {"input_ids": source.astype(np.int64), "attention_mask": mask.astype(np.int64)}
    found = run(theirs, **inputs, decoder_input_ids=ids.astype(np.int64))
    mask = None if name == "whisper" else inputs["attention_mask"].astype(bool)
    close(ours(source, ids, mask=mask), found.logits)
    want = theirs.generate(
        **{key: torch.tensor(value) for key, value in inputs.items()},
        max_new_tokens=40,
        do_sample=False,
        eos_token_id=None,
    ).numpy()
    out = ours.generate(max_new_tokens=40, source=source, mask=mask, stop_tokens=())
    np.testing.assert_array_equal(out[:, -want.shape[1] :][:, -40:], want[:, -40:])


@pytest.mark.parametrize("name", tiny.ALL)
def test_saved_models_load_in_transformers(name: str, pairs: Any, tmp_path: pathlib.Path) -> None:
    theirs, ours = pairs(name)
    ours.save(tmp_path, largest=30_000)
    again, report = type(theirs).from_pretrained(tmp_path, output_loading_info=True)
    missing = {key for key in report["missing_keys"] if "num_batches_tracked" not in key}
    assert not missing and not report["unexpected_keys"] and not report["mismatched_keys"]
    for (path, a), b in zip(theirs.named_parameters(), again.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach(), b.detach(), err_msg=path)


def test_spectrograms() -> None:
    sound = np.random.default_rng(0).normal(size=20000).astype(np.float32) * 0.1
    for bins in (80, 128):
        extractor = transformers.WhisperFeatureExtractor(feature_size=bins)
        close(
            models.log_mel(sound, bins), extractor(sound, sampling_rate=16000, return_tensors="np").input_features, 1e-4
        )


@pytest.mark.parametrize("size", [{"height": 24, "width": 24}, {"shortest_edge": 24}])
@pytest.mark.parametrize("resample", [2, 3])
def test_pictures(size: dict[str, int], resample: int) -> None:
    settings = {"size": size, "resample": resample, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}
    if "shortest_edge" in size:
        settings["crop_size"] = {"height": 20, "width": 20}
    # Smooth, since rounding to integers is a part of their resizing and not of ours.
    grid = np.stack(np.meshgrid(np.linspace(0, 3, 50), np.linspace(0, 2, 40)), -1)
    picture = (127 + 100 * np.sin(grid @ np.array([[1, 2, 1.5], [1, 0.5, 2]]))).astype(np.uint8)
    names = ("do_resize", "do_normalize", "do_rescale")
    processor = transformers.CLIPImageProcessorPil(
        **settings, do_center_crop="crop_size" in settings, **dict.fromkeys(names, True)
    )
    want = processor(picture, return_tensors="np").pixel_values
    close(models.prepare_images([picture], settings), want, 0.02)
