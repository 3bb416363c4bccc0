"""Line plots of a benchmark's figures as SVG; matplotlib comes with the extra `bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.data import BadData


def lines(
    path: Path,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str,
    x: str,
    y: str,
    log_x: bool = False,
) -> None:
    """Write one line for each of `series`, its x and y values. Raises: BadData when matplotlib is missing."""
    try:
        import matplotlib  # noqa: PLC0415 - an optional extra

        matplotlib.use("svg")
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise BadData(path, "cannot be drawn without matplotlib: pip install '.[bench]'") from error
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for name, (across, up) in series.items():
        axes.plot(across, up, marker="o", label=name)
    axes.set(title=title, xlabel=x, ylabel=y, ylim=(0, None), xscale="log" if log_x else "linear")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, format="svg", metadata={"Date": None})
