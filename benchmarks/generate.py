"""Generation by `weft.models` beside `transformers`: the same random weights of a real shape, in one process in turns.

Each round asks one library for a prompt and some tokens, then the other, so that what else the machine does meets both;
the least time of many counts. Loading and the first token are measured in processes of their own, which read the files
from the page cache.

python benchmarks/generate.py [--rounds 5] [--layers 24] [--compile] [--folder build/models/0.5b]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

# The shape of Qwen2.5-0.5B.
SHAPE = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "torch_dtype": "float32",
}
FIRST_TOKEN = """
import time
start = time.perf_counter()
from weft import models
imported = time.perf_counter()
model = models.load({folder!r})
loaded = time.perf_counter()
next(model.stream(list(range(5, 37)), 4, stop_tokens=()))
end = time.perf_counter()
status = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith("Vm"))
print(imported - start, loaded - imported, end - loaded, end - start)
"""
MEMORY = """
import os
from weft import models
def resident(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) * 1024
before = resident("VmRSS")
model = models.load({folder!r})
import weft
weights = sum(leaf.nbytes for leaf in weft.tree.leaves(model.params))
print((resident("VmHWM") - before) / weights, weights)
"""


def make(folder: str, layers: int) -> None:
    """Write a model of random weights, unless the folder has one."""
    if os.path.isfile(os.path.join(folder, "config.json")):
        return
    import weft
    from weft import models

    config = models.read_config({**SHAPE, "num_hidden_layers": layers})
    models.Model(config, models.init(config, weft.random.key(0))).save(folder)


def run(code: str) -> list[float]:
    """Return the numbers that a fresh process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


class Clock:
    """Times at which tokens come; a streamer of `transformers`, which gets the prompt first."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, tokens: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def measure_ours(model: Any, ids: np.ndarray, count: int) -> tuple[float, float]:
    """Return the seconds to the first token, and the least seconds between two further ones."""
    start, clock = time.perf_counter(), Clock()
    for tokens in model.stream(ids, count, stop_tokens=()):
        clock.put(tokens)
    # The last token is chosen from logits that are there already.
    return clock.times[0] - start, min(np.diff(clock.times[:-1]))


def measure_theirs(model: Any, ids: np.ndarray, count: int) -> tuple[float, float]:
    """Return the same of `transformers`."""
    import torch

    tokens = torch.tensor(ids[None]).long()
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "attention_mask": torch.ones_like(tokens)}
    start, clock = time.perf_counter(), Clock()
    with torch.no_grad():
        model.generate(tokens, max_new_tokens=count, streamer=clock, **options)
    return clock.times[1] - start, min(np.diff(clock.times[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--compile", action="store_true", help="compare with torch.compile and a static cache")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args()
    folder = args.folder or f"build/models/qwen2-{args.layers}"
    make(folder, args.layers)

    ratio, weights = run(MEMORY.format(folder=folder))
    print(f"resident memory while loading: {ratio:.2f} of the weights ({weights / 1e9:.2f} GB)")
    runs = [run(FIRST_TOKEN.format(folder=folder)) for _ in range(3)]
    imported, loaded, first, whole = min(runs, key=lambda row: row[-1])
    print(f"python to the first token of a prompt of 32: {whole:.2f} s")
    print(f"  import {imported:.2f}, load {loaded:.2f}, first token {first:.2f}")

    import torch
    import transformers

    from weft import models

    ours = models.load(folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if args.compile:
        theirs.generation_config.cache_implementation = "static"
        theirs.forward = torch.compile(theirs.forward)
    ids = np.random.default_rng(0).integers(5, 150000, args.prompt).astype(np.int32)
    best = {"weft": (np.inf, np.inf), "transformers": (np.inf, np.inf)}
    for number in range(args.rounds + 1):
        for name, call in (
            ("weft", lambda: measure_ours(ours, ids, args.tokens)),
            ("transformers", lambda: measure_theirs(theirs, ids, args.tokens)),
        ):
            found = call()
            print(f"  round {number}: {name} {found[0]:.3f} s, {found[1] * 1e3:.1f} ms a token", flush=True)
            if number:  # the first round compiles
                best[name] = (min(best[name][0], found[0]), min(best[name][1], found[1]))
    for name, (prompt, step) in best.items():
        speed = f"token: {step * 1e3:6.1f} ms   {1 / step:5.1f} tokens/s"
        print(f"{name:13} prompt of {args.prompt}: {prompt * 1e3:7.0f} ms   {speed}")
    (prompt, step), (their_prompt, their_step) = best["weft"], best["transformers"]
    print(f"tokens/s over transformers: {their_step / step:.2f}; prompt: {their_prompt / prompt:.2f}")


if __name__ == "__main__":
    main()
