"""Draws docs/images/heat.svg: the heat of a few segments over 60 simulated days, with what moves marked.

Run as `python scripts/heat_picture.py [--out FILE]`; needs the extra `bench`. The same file comes out every time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memos.core.settings import HeatSettings
from memos.scheduler.heat import Access, Policy, Warmth, tau_for
from memos.scheduler.rules import HeatRules, rules_of, wanted_tau

DAYS = 60
STEPS_A_DAY = 24
SHARE = 0.2
START = datetime(2026, 1, 1, tzinfo=UTC)

Life = list[tuple[float, Access]]  # days and what happened


@dataclass(frozen=True, slots=True)
class Course:
    """One segment's heats, from its first access on, and the places in them where it moves."""

    days: tuple[float, ...]
    heats: tuple[float, ...]
    promoted: tuple[int, ...]
    archived: tuple[int, ...]


def pages(*days: float) -> Life:
    """Return pages merged on these days."""
    return [(day, Access.MERGED) for day in days]


def looked_up(*days: float) -> Life:
    """Return retrievals on these days."""
    return [(day, Access.RETRIEVED) for day in days]


LIVES: dict[str, Life] = {
    "a journey, planned and made": pages(2, 2.1, 2.2, 4, 4.1, 7, 7.1) + looked_up(5, 8, 11) + looked_up(55),
    "a new job": pages(*range(12, 27, 2)) + looked_up(*range(13, 41, 3)),
    "choir, every week": [*pages(*range(1, DAYS, 7)), *looked_up(*range(2, DAYS, 7))],
    "a question asked once": pages(20),
    "an allergy, confirmed by the user": [*pages(30), (30.1, Access.CONFIRMED), (44, Access.RETRIEVED),
                                          (44.01, Access.CITED)],
}  # fmt: skip


def course(life: Life, rules: HeatRules) -> Course:
    """Return a segment's course, looked at every hour."""
    events = sorted(life)
    warmth, hot, kept = Warmth(), False, True
    days: list[float] = []
    heats: list[float] = []
    promoted: list[int] = []
    archived: list[int] = []
    for step in range(int(events[0][0] * STEPS_A_DAY), DAYS * STEPS_A_DAY + 1):
        day = step / STEPS_A_DAY
        while events and events[0][0] <= day:
            warmth = _accessed(rules.policy, warmth, events.pop(0))
        heat = rules.policy.heat(warmth, START + timedelta(days=day))
        if not days and heat == 0:
            continue
        was_hot, was_kept = hot, kept
        hot = rules.thresholds.hot(heat, was_hot=was_hot)
        kept = heat >= rules.thresholds.demote_below if was_kept else hot
        if hot and not was_hot:
            promoted.append(len(days))
        if was_kept and not kept:
            archived.append(len(days))
        days.append(day)
        heats.append(heat)
    return Course(tuple(days), tuple(heats), tuple(promoted), tuple(archived))


def _accessed(policy: Policy, warmth: Warmth, event: tuple[float, Access]) -> Warmth:
    at = START + timedelta(days=event[0])
    return policy.accessed(warmth, event[1], at, at)


def draw(path: Path) -> None:
    """Write the picture."""
    import matplotlib  # noqa: PLC0415 - an optional extra

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "heat"  # else ids differ from run to run
    from matplotlib.figure import Figure  # noqa: PLC0415

    rules = rules_of(HeatSettings(), wanted_tau(HeatSettings(), SHARE))
    border = rules.thresholds
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for name, life in LIVES.items():
        found = course(life, rules)
        [line] = axes.plot(found.days, found.heats, label=name)
        for marker, places in (("^", found.promoted), ("v", found.archived)):
            axes.plot(
                [found.days[place] for place in places], [found.heats[place] for place in places],
                marker=marker, markersize=10, linestyle="none", color=line.get_color(), markeredgecolor="black",
            )  # fmt: skip
    axes.axhline(border.promote_above, color="gray", linestyle="--")
    axes.axhline(border.demote_below, color="gray", linestyle=":")
    axes.annotate("promoted above (▲)", (0.2, border.promote_above * 1.08), color="gray")
    axes.annotate("archived below (▼)", (0.2, border.demote_below * 1.08), color="gray")
    days = tau_for(SHARE) / timedelta(days=1)
    axes.set(
        title=f"Heat of five segments, forward decay with tau = {days:.1f} days",
        xlabel="day", ylabel="heat", yscale="log", xlim=(0, DAYS), ylim=(0.02, 40),
    )  # fmt: skip
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper right", fontsize="small", ncols=2)
    figure.savefig(path, format="svg", metadata={"Date": None})


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent.parent / "docs/images/heat.svg", metavar="FILE"
    )
    draw(parser.parse_args(argv).out)


if __name__ == "__main__":
    main()
