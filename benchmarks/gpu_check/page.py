"""The report of a run as a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_TIERS = ("device", "host", "disk")


def page(told: Mapping[str, Any]) -> str:
    """Return the page of a report."""
    hardware = told.get("hardware", {})
    gpu = hardware.get("gpu")
    where = f"{gpu['name']}, driver {gpu['driver']}, CUDA {gpu['cuda']}" if gpu else "**no GPU: run on the CPU**"
    packages = ", ".join(f"{name} {version}" for name, version in hardware.get("packages", {}).items() if version)
    lines = [
        "# GPU check",
        "",
        f"{told['began']}, {told['seconds']} s of {told['limit_s']:.0f}: **{told['status']}**. {where}; "
        f"{hardware.get('cpu')}, {hardware.get('cores')} cores, {hardware.get('memory_gib')} GiB; "
        f"Python {hardware.get('python')}; {packages}.",
        "",
        "Models have random weights in the shapes of real ones.",
        "",
        "| step | status | seconds | |",
        "|---|---|---|---|",
    ]
    for step in told["steps"]:
        why = step.get("reason", "") or "; ".join(step.get("left_out", ()))
        lines.append(f"| {step['name']} | {step['status']} | {step['seconds']} | {_cell(why)} |")
    for step in told["steps"]:
        lines += _figures(step["name"], step["figures"])
    return "\n".join(lines) + "\n"


def _figures(name: str, figures: Mapping[str, Any]) -> list[str]:
    lines = ["", f"## {name}", ""]
    plain = {key: value for key, value in figures.items() if not isinstance(value, Mapping | list)}
    lines += [f"- {key}: {_short(value)}" for key, value in plain.items() if key != "trace"]
    if isinstance(prefixes := figures.get("prefixes"), Mapping):
        lines += ["", *_ttft(prefixes)]
    for key in ("requests", "tiers"):
        if isinstance(rows := figures.get(key), Mapping):
            lines += ["", *_table(key, [{key: name, **row} for name, row in rows.items()])]
    if isinstance(cases := figures.get("cases"), list):
        lines += ["", *_table("cases", cases)]
    if "trace" in figures:
        lines += ["", "```text", str(figures["trace"]).rstrip(), "```"]
    return lines if len(lines) > 3 else []


def _ttft(prefixes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = [
        "| kept tokens | cold, ms | share of the FLOP limit | from GPU | from pinned host memory | from disk |",
        "|---|---|---|---|---|---|",
    ]
    for tokens, row in prefixes.items():
        cells = [f"{int(tokens):,}", f"{row['cold_s'] * 1000:,.1f}", _percent(row["cold_share_of_flop_limit"])]
        for tier in _TIERS:
            if row.get(f"{tier}_s") is None:
                cells.append("")
                continue
            total, load = (f"{row[f'{tier}_{what}'] * 1000:,.1f} ms" for what in ("s", "load_s"))
            share = _percent(row[f"{tier}_share_of_bandwidth"])
            cells.append(f"{total}, {row[f'gain_{tier}']}×; loading {load}, {share} of the bandwidth")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _table(_: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return lines + ["| " + " | ".join(_short(row.get(name)) for name in names) + " |" for row in rows]


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return _cell("" if value is None else str(value))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:300]
