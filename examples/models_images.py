"""Classification of images by a vision transformer, trained on the direction of stripes.

`python examples/models_images.py FOLDER picture.png` names what a model of Hugging Face's files sees (needs Pillow).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import models, nn, optim

STRIPES = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
    "id2label": {"0": "horizontal", "1": "vertical"},
}


def stripes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images (count, 3, 16, 16) of stripes with noise, and their directions."""
    numbers = np.random.default_rng(seed)
    labels = numbers.integers(0, 2, count)
    waves = np.sin(np.arange(16) * 1.6 + numbers.uniform(0, 6, (count, 1)))
    images = np.where(labels[:, None, None] == 1, waves[:, None, :], waves[:, :, None])
    return (images[:, None] + 0.3 * numbers.normal(size=(count, 3, 16, 16))).astype(np.float32), labels


def describe(folder: str, path: str) -> None:
    """Print the best labels of a picture."""
    from PIL import Image

    model = models.load(folder)
    shares = np.asarray(nn.softmax(model(model.prepare([np.asarray(Image.open(path).convert("RGB"))]))))[0]
    for i in np.argsort(-shares)[:5]:
        print(f"{shares[i]:.3f}  {model.config.raw['id2label'][str(i)]}")


def main(short: bool = False) -> None:
    config = models.read_config(STRIPES)
    model = models.Model(config, models.init(config, weft.random.key(0), scale=0.1))
    optimizer = optim.adam(3e-3)

    @weft.jit
    def step(params: Any, state: Any, images: Any, labels: Any) -> tuple[Any, Any, Any]:
        def loss(params: Any) -> Any:
            return optim.softmax_cross_entropy_with_integer_labels(model.apply(params, images), labels).mean()

        value, gradient = weft.value_and_grad(loss)(params)
        change, state = optimizer.update(gradient, state)
        return optim.apply_updates(params, change), state, value

    params, state = model.params, optimizer.init(model.params)
    for number in range(40 if short else 120):
        images, labels = stripes(32, number)
        params, state, value = step(params, state, images, labels)
        if number % 20 == 0:
            print(f"step {number:3}  loss {float(value):.3f}")
    images, labels = stripes(200, 1000)
    share = float((np.asarray(wnp.argmax(model.replace(params)(images), -1)) == labels).mean())
    assert share > 0.8, share
    print(f"final accuracy {share:.3f}")


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--short"]
    if arguments:
        describe(*arguments[:2])
    else:
        main("--short" in sys.argv)
