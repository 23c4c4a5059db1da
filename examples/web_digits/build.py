"""Web page that recognizes handwritten digits, and learns from its user: `python examples/web_digits/build.py`.

A small convolutional network is trained on the digits of scikit-learn. Its forward pass and its training step are
compiled to WebAssembly, and written with the weights into one file, `examples/out/digits.html`, which needs no server:
open it, draw a digit, and say what it was if the network is wrong.
"""

from __future__ import annotations

import base64
import json
import pathlib
import sys
import tempfile
import time

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import digits  # noqa: E402
import picture  # noqa: E402

import weft  # noqa: E402
import weft.numpy as wnp  # noqa: E402
from weft import export, linen as nn, optim, random  # noqa: E402

BATCH = 32
# Training digits that the page mixes with those of its user, for each of the ten: it would forget the others.
REHEARSED = 12
PAGE_LIMIT = 300_000


class Network(nn.Module):
    """Two convolutions, a pooling and a dense layer."""

    @nn.compact
    def __call__(self, x: weft.Array) -> weft.Array:
        x = nn.relu(nn.Conv(12, (3, 3))(x))
        x = nn.relu(nn.Conv(24, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), strides=(2, 2))
        return nn.Dense(10)(x.reshape(len(x), -1))


network = Network()


def predict(params: dict, x: weft.Array) -> weft.Array:
    """Return the probabilities of the ten digits for one image."""
    return nn.softmax(network.apply({"params": params}, x))[0]


def loss(params: dict, x: weft.Array, y: weft.Array) -> weft.Array:
    logits = network.apply({"params": params}, x)
    return wnp.mean(optim.softmax_cross_entropy(logits, optim.smooth_labels(nn.one_hot(y, 10), 0.05)))


def learn(params: dict, x: weft.Array, y: weft.Array) -> tuple[dict, weft.Array]:
    """Take a step of gradient descent; return the new weights and the loss."""
    value, gradients = weft.value_and_grad(loss)(params, x, y)
    return weft.tree.map(lambda p, g: p - 0.05 * g, params, gradients), value


def move(x: weft.Array, key: weft.Array) -> weft.Array:
    """Shift each image by at most one pixel in each direction: drawings are placed less evenly than the data."""
    shifts = random.randint(key, (len(x), 2), 0, 3)
    padded = wnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    take = weft.vmap(lambda image, at: weft.lax.dynamic_slice(image, (at[0], at[1], 0), (8, 8, 1)))
    return take(padded, shifts)


def train(x: weft.Array, y: weft.Array, epochs: int) -> dict:
    """Return the weights after some epochs."""
    params = network.init(random.key(0), x[:1])["params"]
    optimizer = optim.adamw(optim.cosine_decay_schedule(4e-3, epochs * (len(x) // BATCH)))

    @weft.jit
    def step(params: dict, state: object, x: weft.Array, y: weft.Array, key: weft.Array) -> tuple:
        gradients = weft.grad(loss)(params, move(x, key), y)
        updates, state = optimizer.update(gradients, state, params)
        return optim.apply_updates(params, updates), state

    state = optimizer.init(params)
    for epoch in range(epochs):
        order = random.permutation(random.fold_in(random.key(1), epoch), len(x))
        for i in range(len(x) // BATCH):
            rows = order[i * BATCH : (i + 1) * BATCH]
            key = random.fold_in(random.key(2), epoch * len(x) + i)
            params, state = step(params, state, x[rows], y[rows], key)
    return params


def compile_functions(params: dict) -> export.Library:
    """Compile the forward pass and the training step to WebAssembly."""
    types = weft.tree.map(weft.ShapeDtypeStruct.like, params)
    image, images = (weft.ShapeDtypeStruct((count, 8, 8, 1), np.float32) for count in (1, BATCH))
    labels = weft.ShapeDtypeStruct((BATCH,), np.int32)
    functions = {
        "predict": (predict, types, image),
        "learn": (weft.jit(learn, donate_argnums=0), types, images, labels),
    }
    return export.library(functions, name="digits", target="wasm32")


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write_page(params: dict, x: weft.Array, y: weft.Array) -> str:
    """Return the page: the template with the module, the compiled functions, the weights and digits to rehearse."""
    library = compile_functions(params)
    with tempfile.TemporaryDirectory() as folder:
        library.save(folder)
        module = (pathlib.Path(folder) / "digits.mjs").read_text()
        binary = pathlib.Path(folder) / "libdigits.wasm"
        if not binary.exists():
            sys.exit("Linking for WebAssembly needs a linker: pip install 'weft-jit[library]'")
        code = binary.read_bytes()
    names = [t.name for t in library.signatures[0].arguments if t.name.startswith("params")]
    weights = dict(zip(names, (np.asarray(leaf) for leaf in weft.tree.leaves(params)), strict=True))
    labels = np.asarray(y)
    rows = np.concatenate([np.flatnonzero(labels == digit)[:REHEARSED] for digit in range(10)])
    images = (np.asarray(x)[rows] * 16).astype(np.uint8)
    data = {
        "wasm": encode(code),
        "weights": {name: encode(array.tobytes()) for name, array in weights.items()},
        "images": encode(images.tobytes()),
        "labels": encode(labels[rows].astype(np.uint8).tobytes()),
        "batch": BATCH,
    }
    template = (FOLDER / "page.html").read_text(encoding="utf-8")
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    text = template.replace("/* module */", module.replace("export const", "const"))
    return text.replace("/* page */", script).replace("/* data */", json.dumps(data))


def main(short: bool = False) -> pathlib.Path:
    """Train the network and write the page."""
    x, y, test_x, test_y = digits.load()
    start = time.perf_counter()
    params = train(x, y, 8 if short else 40)
    found = wnp.argmax(weft.jit(network.apply)({"params": params}, test_x), axis=-1)
    accuracy = float(wnp.mean(found == test_y))
    page = write_page(params, x, y)
    print(f"trained and compiled in {time.perf_counter() - start:.1f} s; the page has {len(page) / 1000:.0f} kB")
    print(f"final accuracy {accuracy:.1%} on {len(test_y)} unseen digits")
    assert accuracy > 0.95 and len(page) < PAGE_LIMIT
    picture.OUT.mkdir(exist_ok=True)
    path = picture.OUT / "digits.html"
    path.write_text(page, encoding="utf-8")
    return path


if __name__ == "__main__":
    print(main(short="--short" in sys.argv))
