"""Minimal pairs: a new statement leaves alone what it does not touch, and replaces what it does.

Each cube is told about three matters in a shuffled order, each statement in a conversation of its own, from the frames
of `minimal_pairs.toml`. The kinds of matters:

- `attribute`: another attribute with the same or another value ("I live in Lyon." … "I work in Lyon.").
- `holder`: the same of somebody else ("I live in Lyon." … "My sister lives in Graz.").
- `both`: two values that hold together ("I speak Polish." … "I speak Finnish.").
- `change`: another value of what has one at a time, in the same words or in words of change, and perhaps a statement
  about another attribute.

Figures, from what searches return with default settings and no language model:

- `replaced` and `outdated`: statements that hold, marked as `replaced` and as `possibly_outdated`.
- `untouched_first`: questions about what holds untouched whose first hit says it.
- `changed_first`: questions about what has changed whose first hit is the newest statement; `changed_marked`: older
  statements that are marked as `possibly_outdated` or `replaced`.

Floors: MiniLM and BM25 alone, and the newest statement within 0.2 of MiniLM's best cosine. `--held` measures the half
of the attributes that the rules were not made with.
"""

from __future__ import annotations

import argparse
import random
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from benchmarks.floors import NEWEST_MARGIN, Engines, TermIndex, VectorTexts, best_first, newest_near
from benchmarks.metrics import mean
from benchmarks.report import Report, figures_table, output_parser, positive, progress, run
from benchmarks.stores import ask, installation
from memos import MemOS
from memos.core.types import Standing

KINDS = ("attribute", "holder", "both", "change")
FLOORS = ("minilm", "bm25", "newest")
_DATA = Path(__file__).with_name("minimal_pairs.toml")
_FIGURES = ("replaced", "outdated", "untouched_first", "changed_first", "changed_marked")
_BEGAN = datetime(2026, 1, 5, 9, tzinfo=UTC)
_TOGETHER = 3  # matters in a cube
_TOP_K = 12
# Around a statement, so that not all are short; "{s}" twice is as likely.
_SHELLS = ("{s}", "{s}", "By the way, {s}", "{s} I checked it this morning.", "For your notes: {s}")
_LOWERED = ("My", "Our", "The", "These")


class Frame(BaseModel):
    """Sentences about one attribute, of the speaker and of others, and the questions about it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    me: str
    ask: str
    they: str | None = None
    asks: str | None = None
    now: str | None = None
    one: bool = False
    many: bool = False


class Group(BaseModel):
    """Frames that take the same values."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    values: tuple[str, ...]
    frames: tuple[Frame, ...]
    who: tuple[str, ...] = ()
    held: bool = False
    lang: str = "en"


@dataclass(slots=True)
class Matter:
    """Statements in their order, the questions with the right first hits, and which older statement was replaced."""

    group: Group
    kind: str
    said: list[str]
    questions: list[tuple[str, frozenset[str], bool]] = field(default_factory=list)
    """Each question, the statements that answer it, and whether it is about what has changed."""
    old: str | None = None


class Maker:
    """Makes matters of a group; equal seeds make equal matters."""

    def __init__(self, group: Group, seed: int) -> None:
        self._group = group
        self._random = random.Random(f"{seed}:{group.name}")  # noqa: S311 - for variety

    def make(self, kind: str) -> Matter | None:
        """Return a matter of this kind, None if the group has no frames for it."""
        frames = self._group.frames
        suited = {
            "attribute": frames,
            "holder": [frame for frame in frames if frame.they],
            "both": [frame for frame in frames if frame.many],
            "change": [frame for frame in frames if frame.one],
        }[kind]
        if not suited:
            return None
        frame, (value, other) = self._random.choice(suited), self._random.sample(self._group.values, 2)
        who = self._random.choice(self._group.who) if frame.they and self._random.random() < 0.4 else None
        if kind == "change":
            return self._change(frame, value, other, who)
        if kind == "both":
            said = [self._say(frame, each, who) for each in (value, other)]
            return Matter(self._group, kind, said, [(_ask(frame, who), frozenset(said), False)])
        value_too = self._random.choice((value, other))
        if kind == "holder":
            pairs = [(frame, None), (frame, self._random.choice(self._group.who))]
        else:
            pairs = [(frame, who), (self._sibling(frame, who), who)]
        said = [
            self._say(each, each_value, of) for (each, of), each_value in zip(pairs, (value, value_too), strict=True)
        ]
        questions = [(_ask(each, of), frozenset({text}), False) for (each, of), text in zip(pairs, said, strict=True)]
        self._random.shuffle(said)
        return Matter(self._group, kind, said, questions)

    def _change(self, frame: Frame, value: str, other: str, who: str | None) -> Matter:
        told = frame.now if frame.now and self._random.random() < 0.5 else None
        who = None if told else who
        old, new = self._say(frame, value, who), told.format(v=other) if told else self._say(frame, other, who)
        said, questions = [old, new], [(_ask(frame, who), frozenset({new}), True)]
        if self._random.random() < 0.5:
            beside = self._sibling(frame, who)
            text = self._say(beside, self._random.choice((value, other)), who)
            said.insert(self._random.randrange(3), text)
            questions.append((_ask(beside, who), frozenset({text}), False))
        return Matter(self._group, "change", said, questions, old)

    def _sibling(self, frame: Frame, who: str | None) -> Frame:
        return self._random.choice([e for e in self._group.frames if e is not frame and (e.they or who is None)])

    def _say(self, frame: Frame, value: str, who: str | None) -> str:
        text = frame.me if who is None or frame.they is None else frame.they
        text = text.format(v=value, who=who)
        text = text[0].upper() + text[1:]
        shell = self._random.choice(_SHELLS) if self._group.lang == "en" else "{s}"
        inner = text if shell.startswith("{s}") or text.split()[0] not in _LOWERED else text[0].lower() + text[1:]
        return shell.format(s=inner)


def _ask(frame: Frame, who: str | None) -> str:
    return frame.ask if who is None or frame.asks is None else frame.asks.format(who=who)


def matters(groups: Sequence[Group], count: int, seed: int) -> list[list[Matter]]:
    """Return the matters of each cube: `count` of every group, different groups together."""
    made = []
    for group in groups:
        maker = Maker(group, seed)
        made += [matter for place in range(count) if (matter := maker.make(KINDS[place % len(KINDS)])) is not None]
    random.Random(seed).shuffle(made)  # noqa: S311 - for variety
    cubes: list[list[Matter]] = []
    for matter in made:
        for cube in cubes:
            others = {each.group.name for each in cube}
            alike = cube[0].group.lang == matter.group.lang
            if len(cube) < _TOGETHER and alike and matter.group.name not in others:
                cube.append(matter)
                break
        else:
            cubes.append([matter])
    return cubes


def measure(arguments: argparse.Namespace) -> Report:
    """Tell each cube its statements and ask its questions, of us and of the floors."""
    groups = [Group.model_validate(each) for each in tomllib.loads(_DATA.read_text(encoding="utf-8"))["groups"]]
    cubes = matters([group for group in groups if group.held is arguments.held], arguments.count, arguments.seed)
    engines, rows = Engines.default(), list[dict[str, Any]]()
    with installation() as memos:
        for place, cube in enumerate(progress(cubes, "Minimal pairs")):
            order = _mixed(cube, random.Random(f"{arguments.seed}:{place}"))  # noqa: S311 - for variety
            rows += _rows(memos, f"pairs-{place}", cube, order, engines)
    ours = {kind: _mean(row["ours"] for row in rows if row["kind"] == kind) for kind in KINDS}
    all_of = {"hippocube": _mean(row["ours"] for row in rows)}
    floors = {name: _mean(row[name] for row in rows) for name in FLOORS}
    tables = [
        figures_table(f"Minimal pairs, {len(rows)} matters in {len(cubes)} cubes", _FIGURES, all_of | floors),
        figures_table("By kind", _FIGURES, ours),
    ]
    figures = {"half": "held" if arguments.held else "developed", "n": len(rows), "cubes": len(cubes)}
    return Report({**figures, **all_of["hippocube"], "by_kind": ours, "floors": floors}, rows, tables)


def _mixed(cube: Sequence[Matter], order: random.Random) -> list[str]:
    """Return the statements of a cube, those of each matter in their order."""
    left = [list(matter.said) for matter in cube]
    said = []
    while any(left):
        said.append(order.choice([each for each in left if each]).pop(0))
    return said


def _rows(
    memos: MemOS, cube: str, told: Sequence[Matter], order: Sequence[str], engines: Engines
) -> Iterator[dict[str, Any]]:
    memos.cubes.create(cube)
    times = [_BEGAN + timedelta(days=3 * place) for place in range(len(order))]
    for place, text in enumerate(order):
        message = {"role": "user", "name": "Sam", "content": text, "chat_time": times[place].isoformat()}
        memos.add(message, cube=cube, conversation=f"{cube}-{place}")
    dense, terms = VectorTexts(order, engines.embedder), TermIndex(order, engines.terms)
    for matter in told:
        standings: dict[str, Standing] = {}
        first: dict[str, list[str]] = {name: [] for name in ("ours", *FLOORS)}
        for question, _, _ in matter.questions:
            hits = ask(memos, cube, question, asked=times[-1] + timedelta(days=30), top_k=_TOP_K).hits
            standings |= {hit.item.memory: hit.standing for hit in hits}
            cosines = dense.scores(engines.embedder.embed_query(question))
            found = {
                "minilm": best_first(cosines),
                "bm25": best_first(terms.scores(question)),
                "newest": newest_near(cosines, times, NEWEST_MARGIN),
            }
            first["ours"].append(hits[0].item.memory if hits else "")
            for name, places in found.items():
                first[name].append(order[places[0]] if places else "")
        row: dict[str, Any] = {
            "group": matter.group.name,
            "kind": matter.kind,
            "said": matter.said,
            "first": first["ours"],
        }
        row["ours"] = _judged(matter, first["ours"]) | _marks(matter, standings)
        yield row | {name: _judged(matter, first[name]) for name in FLOORS}


def _judged(matter: Matter, first: Sequence[str]) -> dict[str, float]:
    right: dict[str, list[float]] = {}
    for (_, wanted, changed), text in zip(matter.questions, first, strict=True):
        right.setdefault("changed_first" if changed else "untouched_first", []).append(float(text in wanted))
    return {name: sum(shares) / len(shares) for name, shares in right.items()}


def _marks(matter: Matter, standings: Mapping[str, Standing]) -> dict[str, float]:
    held = [standings.get(text) for text in matter.said if text != matter.old]
    marks = {
        "replaced": held.count(Standing.REPLACED) / len(held),
        "outdated": held.count(Standing.POSSIBLY_OUTDATED) / len(held),
    }
    if matter.old is not None:
        marks["changed_marked"] = float(standings.get(matter.old) in (Standing.REPLACED, Standing.POSSIBLY_OUTDATED))
    return marks


def _mean(rows: Iterator[Mapping[str, float]]) -> dict[str, float]:
    found = mean(rows)
    return {name: found[name] for name in _FIGURES if name in found}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    parser = output_parser(__doc__)
    parser.add_argument("--count", type=positive, default=24, metavar="N", help="matters of each group (default 24)")
    parser.add_argument("--held", action="store_true", help="measure the held-back half of the attributes")
    parser.add_argument("--per-question", type=Path, metavar="FILE", help="write one line of JSON a matter")
    return run("minimal_pairs", parser.parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
