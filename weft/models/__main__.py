"""Conversations with a model: `python -m weft.models chat FOLDER`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TextIO

import numpy as np

from weft import random
from weft.errors import WeftError
from weft.models.model import Model, load
from weft.models.sampling import Sampler


def show_progress(done: int, total: int, out: TextIO | None = None) -> None:
    """Draw a bar of the share of parameters that are loaded."""
    share = done / max(total, 1)
    bar = "#" * int(30 * share)
    print(
        f"\rloading [{bar:<30}] {100 * share:3.0f} %",
        end="\n" if done >= total else "",
        file=out or sys.stderr,
        flush=True,
    )


def answer(model: Model, messages: list[dict[str, str]], sampler: Sampler, seed: int, tokens: int) -> str:
    """Write the answer of a model to a conversation as it comes, and return it."""
    prompt = model.tokenizer.chat(messages)
    found: list[int] = []
    text, start = "", time.perf_counter()
    key = random.key(seed) if sampler.is_random else None
    ends = model.stop_tokens()
    for token in model.stream(np.array(prompt), tokens, sampler=sampler, key=key):
        if int(token[0]) in ends:
            break
        found.append(int(token[0]))
        whole = model.tokenizer.decode(found)
        if not whole.endswith("\ufffd"):  # a character may take several tokens
            print(whole[len(text) :], end="", flush=True)
            text = whole
    seconds = time.perf_counter() - start
    print(f"\n[{len(found)} tokens, {len(found) / max(seconds, 1e-9):.1f} a second]")
    return text


def chat(args: argparse.Namespace) -> None:
    """Talk with a model until the input ends."""
    model = load(args.folder, dtype=args.dtype, quantize=args.quantize, progress=show_progress)
    sampler = Sampler(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p, min_p=args.min_p)
    messages = [{"role": "system", "content": args.system}] if args.system else []
    for number in range(sys.maxsize):
        try:
            text = input("> ")
        except EOFError:
            return
        if not text.strip():
            continue
        messages.append({"role": "user", "content": text})
        reply = answer(model, messages, sampler, args.seed + number, args.max_new_tokens)
        messages.append({"role": "assistant", "content": reply})


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m weft.models", description="Talk with a pre-trained model.")
    command = parser.add_subparsers(required=True).add_parser("chat", help="talk with a model in the terminal")
    command.add_argument("folder", help="folder with config.json, safetensors and tokenizer.json")
    command.add_argument("--dtype", default=None, help="dtype of the parameters, such as bfloat16")
    command.add_argument("--quantize", default=None, help="int8 or int4: quantize the matrices while loading")
    command.add_argument("--system", default="", help="instructions to the model")
    command.add_argument("--max-new-tokens", type=int, default=512)
    command.add_argument("--temperature", type=float, default=0.7, help="0 for the best token")
    command.add_argument("--top-k", type=int, default=0)
    command.add_argument("--top-p", type=float, default=0.95)
    command.add_argument("--min-p", type=float, default=0.0)
    command.add_argument("--seed", type=int, default=0)
    try:
        chat(parser.parse_args(arguments))
    except KeyboardInterrupt:
        print()
    except WeftError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
