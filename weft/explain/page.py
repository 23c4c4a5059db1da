"""HTML page of an explanation: self-contained, with its data as JSON too."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

from weft.base.text import bytes_text
from weft.explain.pictures import memory, roofline

STYLE = """
:root { --ink: #1d2330; --faint: #6b7280; --rule: #d9dce3; --back: #fbfbfd; --panel: #fff; --mark: #ffe9a8;
  --hot: #c2410c; --blue: #2563eb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --faint: #9ca3af; --rule: #374151; --back: #111827;
  --panel: #1f2937; --mark: #6b5a17; --hot: #fb923c; --blue: #60a5fa; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1rem 1.5rem; background: var(--back); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; }
h2 { font-size: 1rem; margin: 0 0 .5rem; }
p { margin: .2rem 0 .6rem; color: var(--faint); }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(32rem, 1fr)); gap: 1rem;
  align-items: start; }
section { background: var(--panel); border: 1px solid var(--rule); border-radius: 6px; padding: .8rem; min-width: 0; }
section.wide { grid-column: 1 / -1; }
pre, code, .code { font: 12px/1.5 ui-monospace, monospace; }
pre { overflow: auto; max-height: 28rem; margin: .3rem 0; }
.code { white-space: pre; }
.panel { overflow: auto; max-height: 32rem; }
.row { display: block; padding: 0 .3rem; border-radius: 3px; }
.number { display: inline-block; width: 3.5rem; text-align: right; color: var(--faint); margin-right: .6rem; }
.time { display: inline-block; width: 4.8rem; text-align: right; color: var(--hot); margin-right: .6rem; }
.file, .gap { color: var(--faint); display: block; margin-top: .3rem; }
.gap { margin: 0; padding-left: 2.5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .15rem .5rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--faint); font-weight: 500; position: sticky; top: 0; background: var(--panel); }
td.text, th.text { text-align: left; white-space: normal; font: 12px/1.4 ui-monospace, monospace; }
.fusion { border: 1px solid var(--rule); border-radius: 4px; padding: .4rem .6rem; margin: .4rem 0; }
.reason { display: block; font-size: 12px; padding-left: 1rem; }
.reason.yes::before { content: "+ "; color: var(--blue); }
.reason.no::before { content: "- "; color: var(--hot); }
.item { cursor: default; }
.on { background: var(--mark); }
svg { width: 100%; height: auto; max-width: 52rem; }
svg .axis { fill: none; stroke: var(--faint); }
svg .tick { fill: var(--faint); font: 11px system-ui, sans-serif; }
svg .roof { stroke: var(--ink); stroke-width: 1.5; }
svg .faint { stroke: var(--rule); }
svg circle { fill: var(--blue); fill-opacity: .6; stroke: var(--blue); }
svg .slot { fill: var(--blue); fill-opacity: .35; stroke: var(--panel); }
svg .live { fill: none; stroke: var(--hot); stroke-width: 1.5; }
svg .on { fill: var(--hot); fill-opacity: .9; }
"""

SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const items = new Map();
for (const element of document.querySelectorAll("[data-id]")) {
  const id = element.dataset.id;
  if (!items.has(id)) items.set(id, []);
  items.get(id).push(element);
}
let held = null;
function show(id) {
  for (const element of document.querySelectorAll(".on")) element.classList.remove("on");
  if (id === null) return;
  for (const other of [id, ...(data.related[id] || [])])
    for (const element of items.get(other) || []) element.classList.add("on");
}
// What belongs together is of no use out of sight: panels other than the one pointed at go to their first lit part.
function reveal(pointed) {
  for (const panel of document.querySelectorAll(".panel")) {
    if (panel.contains(pointed)) continue;
    const lit = [...panel.querySelectorAll(".on")].map(element => element.getBoundingClientRect());
    const box = panel.getBoundingClientRect();
    if (!lit.length || lit.some(part => part.bottom > box.top && part.top < box.bottom)) continue;
    panel.scrollTop += lit[0].top - box.top - box.height / 4;
  }
}
function idOf(event) {
  const element = event.target.closest("[data-id]");
  return element ? element.dataset.id : null;
}
document.addEventListener("mouseover", event => {
  if (held !== null) return;
  show(idOf(event));
  reveal(event.target);
});
document.addEventListener("click", event => {
  if (event.target.closest("summary")) return;
  const id = idOf(event);
  held = id === held ? null : id;
  show(id);
  reveal(event.target);
});
document.addEventListener("keydown", event => { if (event.key === "Escape") { held = null; show(null); } });
"""


def page(data: dict[str, Any]) -> str:
    """Return the whole page."""
    name = html.escape(data["name"])
    # A closing tag inside of a text must not end the script element.
    values = json.dumps(data).replace("</", "<\\/")
    body = "\n".join(
        [
            f"<h1>{name}</h1>",
            f"<p>{_summary(data)}</p>",
            "<p>Point at anything to see what belongs with it; click to hold it, Escape to let go.</p>",
            "<main>",
            _section("Source", _lines(data), "Time of compiled code, by line."),
            _section("Program", _equations(data), "As it was traced."),
            _section("Fusions", _fusions(data), "What became one kernel, and why.", "fusions"),
            _section("Roofline", roofline(data), _limits(data)),
            _section("Steps", _steps(data), "In the order in which they run, with all iterations of loops.", "wide"),
            *([_section("Communication", _communication(data), _sent(data), "wide")] if data["communication"] else []),
            _section("Memory over time", memory(data), _memory(data)),
            _section("Compile time", _stages(data), ""),
            _section("Kernels", _kernels(data), "In the kernel language, in LLVM's, and as machine code.", "wide"),
            "</main>",
        ]
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n"
        f'<script type="application/json" id="data">{values}</script>\n<script>{SCRIPT}</script>\n</body></html>\n'
    )


def _section(title: str, content: str, note: str, kind: str = "") -> str:
    told = f"<p>{note}</p>" if note else ""
    return f'<section class="{kind}"><h2>{title}</h2>{told}{content}</section>'


def _item(tag: str, key: str | None, content: str, kind: str = "") -> str:
    """Return an element that is highlighted together with related ones."""
    classes = f"item {kind}".strip() if key else kind
    marked = f' data-id="{key}"' if key else ""
    return f'<{tag} class="{classes}"{marked}>{content}</{tag}>'


def _summary(data: dict[str, Any]) -> str:
    totals, steps = data["totals"], [s for s in data["steps"] if s["count"]]
    share = 100 * totals["limit"] / totals["seconds"] if totals["seconds"] else 0.0
    return (
        f"The fastest of {data['runs']} runs took {_seconds(data['seconds'])}, {_seconds(totals['seconds'])} of it in "
        f"{len(steps)} steps; the median without timing steps is {_seconds(data['median'])}. "
        f"One run: {_count(totals['flops'])} flops, {_count(totals['functions'])} functions, "
        f"{bytes_text(totals['read'] + totals['written'])} moved, {share:.0f}% of the machine's limit."
    )


def _limits(data: dict[str, Any]) -> str:
    limits = data["limits"]
    calls = f" ({limits['call_flops'] / 1e9:.0f} by libraries)" if limits["call_flops"] else ""
    cache = f", {limits['bandwidths'][0][1] / 1e9:.0f} GB/s from cache" if len(limits["bandwidths"]) > 1 else ""
    return (
        f"{limits['threads']} threads: {limits['flops'] / 1e9:.0f} Gflop/s of fused products and sums{calls}, "
        f"{limits['bandwidths'][-1][1] / 1e9:.1f} GB/s from memory{cache}, {limits['source']}. "
        "A function such as exp counts as the additions that take as long. More than 100% of the limit means "
        "that data was in a faster memory than its size suggests."
    )


def _memory(data: dict[str, Any]) -> str:
    about = data["memory"]
    return (
        f"Arguments {bytes_text(about['arguments'])}, results {bytes_text(about['results'])}, constants "
        f"{bytes_text(about['constants'])}, temporaries {bytes_text(about['temporaries'])}; "
        f"{bytes_text(about['peak'])} at most."
    )


def _lines(data: dict[str, Any]) -> str:
    rows, file, last = [], None, 0
    for line in data["lines"]:
        if line["file"] != file:
            file = line["file"]
            rows.append(f'<span class="file">{html.escape(file)}</span>')
        elif line["number"] != last + 1:
            rows.append('<span class="gap">&hellip;</span>')
        last = line["number"]
        time = _seconds(line["seconds"]) if line["seconds"] else ""
        content = (
            f'<span class="number">{line["number"]}</span><span class="time">{time}</span>{html.escape(line["text"])}'
        )
        rows.append(_item("span", line["id"], content, "row"))
    return f'<div class="code panel">{"".join(rows)}</div>'


def _equations(data: dict[str, Any]) -> str:
    rows = [
        _item("span", row["id"], "  " * row["depth"] + html.escape(row["text"]), "row") for row in data["equations"]
    ]
    return f'<div class="code panel">{"".join(rows)}</div>'


def _fusions(data: dict[str, Any]) -> str:
    seconds: dict[str, float] = {}
    for step in data["steps"]:
        if step["fusion"]:
            seconds[step["fusion"]] = seconds.get(step["fusion"], 0.0) + step["seconds"]
    parts = []
    for unit in data["fusions"]:
        led = f" led by {unit['hero']}" if unit["hero"] else ""
        count = f", {_count_text(len(unit['operations']), 'operation')}" if unit["fused"] else ""
        time = f" &middot; {_seconds(seconds[unit['id']])}" if seconds.get(unit["id"]) else ""
        head = f"<b>{unit['id']}</b> {html.escape(unit['kind'])}{html.escape(led)}{count}{time}"
        reasons = "".join(_reason(reason, None) for reason in unit["reasons"])
        text = html.escape("\n".join(unit["text"]))
        body = f"<details><summary>{head}</summary><pre>{text}</pre></details>{reasons}" if text else head + reasons
        style = f' style="margin-left:{unit["depth"] * 1.5}rem"' if unit["depth"] else ""
        parts.append(f'<div class="item fusion" data-id="{unit["id"]}"{style}>{body}</div>')
    if data["refusals"]:
        parts.append("<h2>Not fused</h2>")
        parts += [_reason(reason, reason["id"]) for reason in data["refusals"]]
    return f'<div class="panel">{"".join(parts)}</div>'


def _reason(reason: dict[str, Any], key: str | None) -> str:
    return _item("span", key, html.escape(reason["text"]), f"reason {'yes' if reason['verdict'] else 'no'}")


def _steps(data: dict[str, Any]) -> str:
    head = ("step", "runs", "time", "flops", "functions", "bytes", "flop/s", "B/s", "of the limit", "fusion", "kernel")
    rows = []
    for step in data["steps"]:
        seconds, accessed = step["seconds"], step["read"] + step["written"]
        rates = (_count(step["flops"] / seconds), bytes_text(accessed / seconds)) if seconds else ("", "")
        cells = (
            html.escape(step["text"]),
            str(step["count"] or ""),
            _seconds(seconds) if seconds else "",
            _count(step["flops"]),
            _count(step["functions"]),
            bytes_text(accessed) if accessed else "",
            *rates,
            f"{100 * step['share']:.0f}%" if seconds else "",
            step["fusion"] or "",
            step["kernel"] or "",
        )
        rows.append(_item("tr", step["id"], _cells(cells), ""))
    return f'<div class="panel">{_table(head, rows)}</div>'


def _sent(data: dict[str, Any]) -> str:
    total = sum(row["bytes"] * row["times"] for row in data["communication"])
    return f"What each device sends in one run: {bytes_text(total)}. Everything else on this page is of one device."


def _communication(data: dict[str, Any]) -> str:
    head = ("collective", "axis", "bytes", "times", "line", "value", "reason")
    rows = []
    for row in data["communication"]:
        texts = [row["kind"], row["axis"], bytes_text(row["bytes"]), f"{row['times']:g}", row["line"]]
        cells = _cells([html.escape(t) for t in texts])
        words = "".join(f'<td class="text">{html.escape(t)}</td>' for t in (row["value"], row["reason"]))
        rows.append(_item("tr", row["id"], cells + words))
    return f'<div class="panel">{_table(head, rows)}</div>'


def _cells(cells: Sequence[str]) -> str:
    return "".join(f'<td class="{"" if n else "text"}">{cell}</td>' for n, cell in enumerate(cells))


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    names = "".join(f'<th class="{"" if n else "text"}">{name}</th>' for n, name in enumerate(head))
    return f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _stages(data: dict[str, Any]) -> str:
    rows = [
        f"<tr>{_cells((html.escape(s['name']), _seconds(s['seconds']), '' if s['changed'] else 'unchanged'))}</tr>"
        for s in data["stages"]
    ]
    return _table(("stage", "time", ""), rows)


def _kernels(data: dict[str, Any]) -> str:
    parts = []
    for kernel in data["kernels"]:
        head = (
            f"<b>{kernel['id']}</b> <code>{html.escape(kernel['name'])}</code> &middot; "
            f"{_count_text(kernel['count'], 'run')}, {_seconds(kernel['seconds'])}, "
            f"{100 * kernel['share']:.0f}% of the limit"
        )
        figures = {name.replace("_", " "): value for name, value in kernel["figures"].items()}
        head += "".join(f", {html.escape(name)} {value:.4g}" for name, value in figures.items())
        named = (("text", "kernel"), ("llvm", "LLVM"), ("assembly", "assembly"), ("machine_code", "machine code"))
        texts = "".join(
            f"<details><summary>{title}</summary><pre>{html.escape(kernel[word])}</pre></details>"
            for word, title in named
            if kernel[word]
        )
        parts.append(f'<div class="item fusion" data-id="{kernel["id"]}">{head}{texts}</div>')
    return f'<div class="panel">{"".join(parts)}</div>'


def _count_text(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "&micro;s")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _count(count: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.3g}{prefix}"
    return f"{count:.3g}" if count else ""
