"""Reports of a run: a table as text, a page with a plot, and a comparison with the last release.

python benchmarks/report.py FILE.json      the table as text
python benchmarks/report.py FILE.json --page docs/benchmarks.md      rewrite the tables of the page and its plot
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from libraries import TITLES
from measure import Result

HISTORY = pathlib.Path(__file__).resolve().parent / "history"
# A ratio that grew by this factor since the last release is reported as a loss; less is noise of a shared machine.
LOSS = 1.25
START, END = "<!-- measured: {} -->", "<!-- end: {} -->"


def shown(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1 or unit == "us":
            return f"{value * scale:.2f} {unit}"
    raise AssertionError


def cells(result: Result, sides: Sequence[str]) -> list[str]:
    ratio, work = result.ratio(), result.work_ratio()
    return [
        *(shown(result.times[side].median) if side in result.times else "" for side in sides),
        "" if work is None else f"{work:.2f}",
        "" if ratio is None else f"{ratio:.2f}",
        "" if result.at_most is None else f"{result.at_most:.2f}",
        ", ".join(result.marks),
    ]


def measured_sides(results: Sequence[Result]) -> list[str]:
    return [side for side in TITLES if any(side in result.times for result in results)]


def text_table(results: Sequence[Result]) -> str:
    """Format the table for a terminal; lines with a problem have a mark at the end."""
    sides = measured_sides(results)
    head = f"{'':52s}" + "".join(f"{TITLES[side]:>12s}" for side in sides) + f"{'work':>7s}{'ratio':>8s}{'at most':>9s}"
    rows = [head]
    for result in results:
        *times, work, ratio, bound, marks = cells(result, sides)
        row = f"{result.name:52s}" + "".join(f"{time:>12s}" for time in times) + f"{work:>7s}{ratio:>8s}{bound:>9s}"
        rows.append(f"{row}  <- {marks}" if marks else row)
    return "\n".join(rows)


def page_table(results: Sequence[Result]) -> str:
    sides = measured_sides(results)
    head = ["", *(TITLES[side] for side in sides), "work, Weft / JAX", "time, Weft / JAX", "at most", ""]
    rows = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(sides) + 3) + "---|"]
    rows += ["| " + " | ".join([result.name, *cells(result, sides)]) + " |" for result in results]
    return "\n".join(rows)


def plot(results: Sequence[Result]) -> str:
    """Draw an SVG plot of Weft's time over JAX's: bars on a logarithmic scale, with a tick at the bound."""
    drawn = [(result, ratio) for result in results if (ratio := result.ratio()) is not None and ratio > 0]
    row, left, width, top = 18, 350, 420, 34
    low, high = math.log10(0.01), math.log10(4)

    def x_of(ratio: float) -> float:
        return left + (min(max(math.log10(ratio), low), high) - low) / (high - low) * width

    height = top + row * len(drawn) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 70} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{left + width + 70}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="14">Weft\'s time / JAX\'s time; the tick is the bound</text>',
    ]
    for grid in (0.01, 0.03, 0.1, 0.3, 1, 3):
        colour = "#888" if grid == 1 else "#ddd"
        parts.append(
            f'<line x1="{x_of(grid):.1f}" y1="{top - 4}" x2="{x_of(grid):.1f}" y2="{height - 8}" stroke="{colour}"/>'
            f'<text x="{x_of(grid):.1f}" y="{top - 7}" text-anchor="middle" fill="#666" font-size="10">{grid:g}</text>'
        )
    for i, (result, ratio) in enumerate(drawn):
        y = top + row * i
        colour = "#c0504d" if result.falls_short else "#4f81bd"
        name = result.name.replace("&", "&amp;").replace("<", "&lt;")
        parts.append(
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{name}</text>'
            f'<rect x="{left}" y="{y + 4}" width="{x_of(ratio) - left:.1f}" height="{row - 6}" fill="{colour}"/>'
            f'<text x="{x_of(ratio) + 4:.1f}" y="{y + 13}" font-size="10" fill="#333">{ratio:.2f}</text>'
        )
        if result.at_most is not None:
            at = x_of(result.at_most)
            parts.append(
                f'<line x1="{at:.1f}" y1="{y + 2}" x2="{at:.1f}" y2="{y + row}" stroke="black" stroke-width="2"/>'
            )
    return "\n".join([*parts, "</svg>", ""])


def gain(seconds: Mapping[str, float], side: str) -> str:
    """Return the speedup of a library over NumPy, with two digits."""
    if side not in seconds or "numpy" not in seconds:
        return ""
    times = seconds["numpy"] / seconds[side]
    return f"{times:.0f}x" if times >= 10 else f"{times:.1f}x"


def newton_table(rows: Sequence[Mapping[str, Any]], page: bool) -> str:
    """Format the fits of newton_cg.py: seconds of each library, and the speedups of Weft and JAX over Python."""
    lines = [] if not page else ["| | NumPy | JAX | Weft | JAX over Python | Weft over Python | the paper |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"] if page else []
    for row in rows:
        seconds = row["seconds"]
        times = [shown(seconds[side]) if side in seconds else "" for side in ("numpy", "jax", "weft")]
        gains = [gain(seconds, side) for side in ("jax", "weft")]
        values = [*times, *gains, f"{row['paper']}x"]
        if page:
            lines.append("| " + " | ".join([row["name"], *values]) + " |")
        else:
            titles = ("NumPy", "JAX", "Weft", "JAX over Python", "Weft over Python", "the paper")
            told = ", ".join(f"{title} {value}" for title, value in zip(titles, values, strict=True) if value)
            lines.append(f"{row['name']}: {told}")
    return "\n".join(lines)


def last_release() -> dict[str, Any] | None:
    """Read the JSON of the newest release in the history."""

    def version(path: pathlib.Path) -> tuple[int, ...]:
        return tuple(int(part) for part in path.stem.split("."))

    files = sorted(HISTORY.glob("[0-9]*.json"), key=version)
    return json.loads(files[-1].read_text()) if files else None


def losses(results: Sequence[Result], before: Mapping[str, Any]) -> list[str]:
    """Describe the lines whose ratio to JAX grew since an earlier run, the greatest loss first."""
    old = {row["name"]: Result.from_json(row).ratio() for row in before["lines"]}
    found = []
    for result in results:
        now, then = result.ratio(), old.get(result.name)
        if now is not None and then is not None and now > LOSS * then:
            found.append((now / then, f"{result.name}: {then:.2f} of JAX's time became {now:.2f}"))
    return [text for _, text in sorted(found, reverse=True)]


def replaced(page: str, part: str, content: str) -> str:
    """Replace the text between the marks of `part` of a page."""
    start, end = START.format(part), END.format(part)
    before, _, rest = page.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page has no part {part!r}")
    return f"{before}{start}\n{content}\n{end}{after}"


def write_page(run: Mapping[str, Any], path: pathlib.Path) -> None:
    results = [Result.from_json(row) for row in run["lines"]]
    machine = run["machine"]
    peers = ", ".join(f"{TITLES[side]} {version}" for side, version in run["versions"].items())
    about = f"{peers}; Python {machine['python']}, {machine['processor']}, {machine['cores']} cores"
    if machine["load"] is not None:
        about += f" with {machine['load']:.1f} other processes on each"
    about = textwrap.fill(about + ".", 100)
    page = replaced(path.read_text(), "lines", f"{about}\n\n{page_table(results)}")
    page = replaced(page, "fits", newton_table(run.get("newton_cg", []), page=True))
    path.write_text(page)
    path.with_suffix(".svg").write_text(plot(results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path)
    args = parser.parse_args()
    run = json.loads(args.file.read_text())
    if args.page:
        write_page(run, args.page)
    else:
        print(text_table([Result.from_json(row) for row in run["lines"]]))
        print(newton_table(run.get("newton_cg", []), page=False))


if __name__ == "__main__":
    main()
