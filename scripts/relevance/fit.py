"""Fit the weights of `memos.search.relevance`, and print how well they do on what they were not fitted to.

    python -m scripts.relevance.fit --chats ../shared/bench/data/locomo_dev.json ../shared/bench/data/beam_100k_0*.json
        --lives ../shared/bench/lives_dev.jsonl --preferences ../shared/bench/data/prefeval_dev.json
        --searches /tmp/searches.pickle --write

Sources: `locomo` and `beam` as `benchmarks.relevance` asks them; `parts`, single sessions of LoCoMo and a few of their
messages as cubes of their own; `lives` and `preferences`; and two files of this project, `stories` (those of
`scripts/judge`) and `facts` (one to three short statements in six languages, `facts.jsonl.gz`, written for this).
Unanswerable are questions of other cubes of the same kind, of other parts of the same conversation, BEAM's abstentions
and nonsense. A question with an answer in its cube that is not among the hits teaches the first model nothing, and a
statement that was replaced teaches the second nothing.

The figures are those of `benchmarks.relevance` at the recommended threshold, by folds over conversations, stories and
topics. Asking everything takes about half an hour on two idle cores; `--searches` keeps what was found, so that another
fit takes a minute. The file is a pickle: give none of others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pickle
import random
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import lifecycle
from benchmarks import relevance as measured
from benchmarks.data import Chat, Message, Question, Session, load_prefeval
from benchmarks.stores import ask, fill, installation
from memos import MemOS
from memos.core.types import RELEVANT, Hit
from memos.search.question import Question as Asked
from memos.search.rank import Ranked
from memos.search.relevance import WEIGHTS, Relevance, Weights
from memos.search.searcher import RankedCandidates, Searcher

HERE = Path(__file__).parent
STORIES = HERE.parent / "judge" / "stories.jsonl.gz"
TOP_K = measured.TOP_K
POOL = 20
ASKED = datetime(2025, 6, 1, tzinfo=UTC)
SEED = 5
FOLDS = 5
LOCOMO = frozenset({"single-hop", "multi-hop", "temporal", "open-domain", "adversarial"})
SOURCE = HERE.parents[1] / "memos" / "search" / "relevance.py"
STORIES_OF_ONE = 150  # of each language
FACT_CUBES = 15
PENALTY, FOREIGN_PENALTY = 0.5, 10.0  # of squared weights, and of what is different about foreign questions
LEAST_SCALE = 0.2  # so that what hardly any foreign question shows gets no great weight
# How much a search of each source weighs: there are more of some than of others, and some are more like real use.
SHARES = {
    "locomo": 2.0,
    "beam": 1.0,
    "lives": 2.0,
    "parts": 1.0,
    "preferences": 0.5,
    "facts": 0.5,
    "stories": 0.25,
}


@dataclass(frozen=True, slots=True)
class Search:
    """A question asked of a cube, and what was found; `gold` is None for hits that are neither right nor wrong."""

    source: str
    fold: str
    kind: str
    question: Asked
    terms: int
    ranked: tuple[Ranked, ...]
    gold: tuple[bool | None, ...]


class Recorder:
    """Asks an installation, and keeps the ranked candidates of each search."""

    def __init__(self, memos: MemOS) -> None:
        self._memos = memos
        self._found: RankedCandidates | None = None
        hits = Searcher.hits

        def recorded(reader: Any, request: Any, found: RankedCandidates) -> tuple[Hit, ...]:
            self._found = found
            return hits(reader, replace(request, top_k=POOL), found)

        Searcher.hits = staticmethod(recorded)  # type: ignore[method-assign]
        self._restore = lambda: setattr(Searcher, "hits", staticmethod(hits))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def search(
        self,
        cube: str,
        text: str,
        asked: datetime | None,
        *,
        source: str,
        fold: str,
        kind: str,
        is_gold: Callable[[Hit], bool | None] = lambda _: False,
    ) -> Search:
        """Ask one question."""
        hits = ask(self._memos, cube, text, asked=asked, top_k=TOP_K).hits
        found = self._found
        assert found is not None
        gold = {hit.item.id: is_gold(hit) for hit in hits}
        ranked = tuple(entry for entry in found.ranked[:POOL] if entry.item.id in gold)
        return Search(
            source,
            fold,
            kind,
            found.question,
            found.terms,
            ranked,
            tuple(gold[entry.item.id] for entry in ranked),
        )


def of_chats(kinds: Sequence[Sequence[Chat]]) -> Iterator[Search]:
    """Ask whole conversations as `benchmarks.relevance` does."""
    for chats in kinds:
        source = "locomo" if _is_locomo(chats) else "beam"
        sessions = {chat.name: chat.sessions for chat in chats}
        filled: set[str] = set()
        with installation() as memos, Recorder(memos) as recorder:
            for each in measured.questions([chats]):
                name = each.conversation
                if name not in filled:
                    fill(memos, name, sessions[name])
                    filled.add(name)
                yield recorder.search(
                    name,
                    each.question.text,
                    each.question.asked,
                    source=source,
                    fold=name,
                    kind=each.kind,
                    is_gold=_from(each.gold),
                )


def _is_locomo(chats: Sequence[Chat]) -> bool:
    return chats[0].questions[0].kind in LOCOMO


def _from(ids: frozenset[str]) -> Callable[[Hit], bool]:
    return lambda hit: any(source.external_id in ids for source in hit.sources)


def of_parts(chats: Sequence[Chat]) -> Iterator[Search]:
    """Ask single sessions of conversations, and a few messages around one that is evidence, as cubes of their own."""
    chance = random.Random(SEED)
    with installation() as memos, Recorder(memos) as recorder:
        for place, chat in enumerate(chats):
            own = [each for each in chat.questions if each.kind != "adversarial"]
            other = chats[(place + 1) % len(chats)]
            elsewhere = [measured.renamed(each, other, chat) for each in other.questions if each.kind != "adversarial"]
            for session in chat.sessions:
                for number, (messages, answered) in enumerate(_cut(session, own, chance)):
                    name = f"{chat.name} {session.name} {number}"
                    fill(memos, name, [Session(session.name, messages)])
                    ids = {message.id for message in session.messages}
                    missing = [each for each in own if not ids & set(each.gold)]
                    count = max(1, len(answered))
                    todo = [(measured.ANSWERABLE, each) for each in answered]
                    todo += [("own", each) for each in chance.sample(missing, count)]
                    todo += [("elsewhere", each) for each in chance.sample(elsewhere, max(1, count // 2))]
                    if chance.random() < 0.3:
                        todo.append(("nonsense", replace(own[0], text=chance.choice(measured.NONSENSE))))
                    for kind, each in todo:
                        gold = frozenset(each.gold if kind == measured.ANSWERABLE else ())
                        yield recorder.search(
                            name, each.text, each.asked, source="parts", fold=chat.name, kind=kind, is_gold=_from(gold)
                        )


def _cut(
    session: Session, questions: Sequence[Question], chance: random.Random
) -> Iterator[tuple[tuple[Message, ...], list[Question]]]:
    ids = [message.id for message in session.messages]
    answered = [each for each in questions if set(each.gold) <= set(ids)]
    chance.shuffle(answered)
    yield session.messages, answered[:5]
    for each in answered[5:9]:
        gold = ids.index(chance.choice(each.gold))
        first = max(0, gold - chance.randint(0, 3))
        yield session.messages[first : max(first + chance.randint(2, 6), gold + 1)], [each]


def of_lives(path: Path) -> Iterator[Search]:
    """Ask the stories of `benchmarks.lifecycle`."""
    chance = random.Random(SEED)
    stories = lifecycle.load(path)
    with installation() as memos, Recorder(memos) as recorder:
        for place, story in enumerate(stories):
            lifecycle.tell(memos, story)
            of_one: dict[str, Any] = {"source": "lives", "fold": f"life {place % 5}"}
            others = [each for each in stories if each.lang == story.lang and each.id != story.id]
            for asked in story.questions:
                if asked.want is not None:
                    stale = {story.turns[turn].text for turn in asked.stale_turns} if asked.about != "past" else set()
                    is_gold = _wanted(asked.want, stale)
                    yield recorder.search(
                        story.id, asked.ask, asked.at, kind=measured.ANSWERABLE, is_gold=is_gold, **of_one
                    )
                other = chance.choice(chance.choice(others).questions)
                yield recorder.search(story.id, other.ask, asked.at, kind="elsewhere", **of_one)
            if chance.random() < 0.3:
                text = chance.choice(measured.NONSENSE)
                yield recorder.search(story.id, text, story.questions[0].at, kind="nonsense", **of_one)


def _wanted(want: str, stale: set[str]) -> Callable[[Hit], bool | None]:
    def is_gold(hit: Hit) -> bool | None:
        return None if hit.item.memory in stale else want.casefold() in hit.item.memory.casefold()

    return is_gold


def of_preferences(path: Path) -> Iterator[Search]:
    """Ask for what stated preferences matter to, each among eleven other messages."""
    chance = random.Random(SEED)
    given = load_prefeval(path)
    others = [message for session in given.distractors for message in session.messages]
    with installation() as memos, Recorder(memos) as recorder:
        for place, (topic, preference, question) in enumerate(given.pairs[::2]):
            said = [*chance.sample(others, 11), Message("", "user", preference)]
            messages = tuple(Message(str(number), each.role, each.text[:1500]) for number, each in enumerate(said))
            name = f"preference {place}"
            fill(memos, name, [Session("one", messages)])
            of_one: dict[str, Any] = {"source": "preferences", "fold": topic}
            is_gold = _wanted(preference, set())
            yield recorder.search(name, question, ASKED, kind=measured.ANSWERABLE, is_gold=is_gold, **of_one)
            other = chance.choice([pair for pair in given.pairs if pair[0] != topic])
            yield recorder.search(name, other[2], ASKED, kind="elsewhere", **of_one)


def of_stories() -> Iterator[Search]:
    """Ask the stories of the judge's fit: small cubes in four languages in which something changes, or nothing."""
    chance = random.Random(SEED)
    by_language: dict[str, list[Any]] = {}
    for story in _lines(STORIES):
        by_language.setdefault(story["lang"], []).append(story)
    with installation() as memos, Recorder(memos) as recorder:
        for stories in by_language.values():
            for story in chance.sample(stories, STORIES_OF_ONE):
                texts, asked = story["statements"], story["questions"]
                _tell(memos, story["id"], texts)
                of_one: dict[str, Any] = {"source": "stories", "fold": f"story {zlib.crc32(story['id'].encode()) % 5}"}
                others = [each for each in stories if each["id"] != story["id"]]
                for each in asked:
                    is_gold = _wanted(texts[each["want"]], {texts[place] for place in each.get("stale", ())})
                    yield recorder.search(
                        story["id"], each["ask"], ASKED, kind=measured.ANSWERABLE, is_gold=is_gold, **of_one
                    )
                    other = chance.choice(chance.choice(others)["questions"])
                    yield recorder.search(story["id"], other["ask"], ASKED, kind="elsewhere", **of_one)
                if chance.random() < 0.3:
                    text = chance.choice(measured.NONSENSE)
                    yield recorder.search(story["id"], text, ASKED, kind="nonsense", **of_one)


def of_facts() -> Iterator[Search]:
    """Ask cubes of one to three short statements in six languages; a fold has facts that no other has."""
    chance = random.Random(SEED)
    by_language: dict[str, list[Any]] = {}
    for fact in _lines(HERE / "facts.jsonl.gz"):
        by_language.setdefault(fact["lang"], []).append(fact)
    with installation() as memos, Recorder(memos) as recorder:
        for language, facts in by_language.items():
            for number in range(FACT_CUBES):
                fold = number % 5
                group = chance.sample(facts[fold::5], len(facts[fold::5]))
                told = 1 + number % 3
                name = f"{language} {number}"
                _tell(memos, name, [fact["statement"] for fact in group[:told]])
                of_one: dict[str, Any] = {"source": "facts", "fold": f"facts {fold}"}
                for fact in group[:told]:
                    is_gold = _wanted(fact["statement"], set())
                    for text in fact["questions"]:
                        yield recorder.search(name, text, ASKED, kind=measured.ANSWERABLE, is_gold=is_gold, **of_one)
                for fact in group[told:]:
                    for text in fact["questions"]:
                        yield recorder.search(name, text, ASKED, kind="elsewhere", **of_one)


def _lines(path: Path) -> list[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _tell(memos: MemOS, cube: str, texts: Sequence[str]) -> None:
    memos.cubes.create(cube)
    for number, text in enumerate(texts):
        while not memos.add(text, cube=cube, conversation=str(number), idempotency_key=f"{cube} {number}").indexed:
            pass


def collect(arguments: argparse.Namespace) -> Iterator[Search]:
    """Ask everything that is given."""
    yield from of_facts()
    yield from of_stories()
    kinds = measured.load(arguments.chats) if arguments.chats else []
    yield from of_chats(kinds)
    for chats in kinds:
        if _is_locomo(chats):
            yield from of_parts(chats)
    if arguments.lives:
        yield from of_lives(arguments.lives)
    if arguments.preferences:
        yield from of_preferences(arguments.preferences)


@dataclass(frozen=True, slots=True)
class Example:
    """What the models see of a search: features of the whole, of each hit, and which hits are right."""

    search: Search
    pool: np.ndarray
    hits: np.ndarray
    gold: tuple[bool | None, ...]
    is_foreign: bool

    @property
    def answerable(self) -> bool | None:
        """Whether there is an answer among the hits; None if there is one elsewhere in the cube."""
        if self.search.kind != measured.ANSWERABLE:
            return False
        return True if any(self.gold) else None


def example(search: Search) -> Example:
    """Return the features of a search."""
    seen = Relevance(search.ranked, search.question, search.terms)
    hits = np.array([seen.hit_features(entry) for entry in search.ranked[:TOP_K]])
    return Example(search, np.array(seen.pool_features), hits, search.gold[:TOP_K], seen.is_foreign)


def fit(examples: Sequence[Example]) -> Weights:
    """Fit both models, with what is different about questions in other languages than English."""
    asked = [each for each in examples if each.answerable is not None]
    pools = np.array([[*each.pool, *_foreign(each)] for each in asked])
    answerable = logistic(
        pools,
        [each.answerable for each in asked],
        [_share(each) for each in asked],
    )
    rows, gold, shares = [], [], []
    for each in examples:
        for hit, is_gold in zip(each.hits, each.gold, strict=True):
            if is_gold is not None:
                rows.append([*each.pool, *hit, *_foreign(each)])
                gold.append(is_gold)
                shares.append(_share(each))
    hit = logistic(np.array(rows), gold, shares)
    return Weights(_named(WEIGHTS.answerable, answerable), _named(WEIGHTS.hit, hit))


def _foreign(each: Example) -> list[float]:
    return [each.is_foreign * float(value) for value in (*each.pool, 1)]


def _share(each: Example) -> float:
    return SHARES[each.search.source]


def _named(like: Mapping[str, Any], found: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return the weights of features, then of those of a foreign question, then the bias, under their names."""
    own, more = len(like) - 1, len(WEIGHTS.answerable)
    weights, foreign, bias = found[:own], found[own : own + more], found[-1]
    extra = [*foreign[:-1], *([0.0] * (own - more + 1)), foreign[-1]]
    pairs = zip(like, [*weights, bias], extra, strict=True)
    return {name: (round(float(value), 3), round(float(value + other), 3)) for name, value, other in pairs}


def logistic(rows: np.ndarray, gold: Sequence[bool | None], weights: Sequence[float]) -> np.ndarray:
    """Return the weights of a penalised logistic regression, the bias last, by Newton's method."""
    mean, scale = rows.mean(0), rows.std(0) + 1e-9
    more = len(WEIGHTS.answerable)
    own = rows.shape[1] - more
    scale[own:] = np.maximum(scale[own:], LEAST_SCALE)
    given = np.c_[(rows - mean) / scale, np.ones(len(rows))]
    wanted, shares = np.array(gold, float), np.array(weights)
    penalty = np.diag([PENALTY] * own + [FOREIGN_PENALTY] * more + [1e-6])
    found = np.zeros(given.shape[1])
    for _ in range(30):
        likely = 1 / (1 + np.exp(-given @ found))
        slope = given.T @ (shares * (likely - wanted)) + penalty @ found
        bend = (given * (shares * likely * (1 - likely) + 1e-9)[:, None]).T @ given + penalty
        step = np.linalg.solve(bend, slope)
        found -= step * min(1.0, 2.0 / np.abs(step).max())
        if np.abs(step).max() < 1e-6:
            break
    return np.append(found[:-1] / scale, found[-1] - float(found[:-1] @ (mean / scale)))


def judged(search: Search, weights: Weights) -> measured.Found:
    """Return the relevance of the hits by given weights."""
    seen = Relevance(search.ranked, search.question, search.terms, weights=weights)
    told = [
        (seen.of(entry), is_gold)
        for entry, is_gold in zip(search.ranked[:TOP_K], search.gold[:TOP_K], strict=True)
        if is_gold is not None
    ]
    kind = "elsewhere" if search.kind == "own" else search.kind
    return measured.Found(kind, tuple(each for each, _ in told), tuple(bool(is_gold) for _, is_gold in told))


def figures(found: Sequence[measured.Found]) -> dict[str, float | None]:
    """Return what `benchmarks.relevance` measures, at the recommended threshold."""
    relevance = np.array([each for one in found for each in one.relevance])
    gold = np.array([each for one in found for each in one.gold])
    error = measured.expected_error(list(measured.reliability(relevance, gold)))
    return {"ece": error, "auc": measured.area(relevance, gold), **measured.at_threshold(found, RELEVANT)}


def by_folds(searches: Sequence[Search], examples: Sequence[Example]) -> list[measured.Found]:
    """Return the relevance of every hit by weights that were fitted to other folds."""
    numbers: dict[str, int] = {}
    for source in dict.fromkeys(each.source for each in searches):
        names = sorted({each.fold for each in searches if each.source == source})
        numbers |= {name: place % FOLDS for place, name in enumerate(names)}
    folds = [numbers[each.fold] for each in searches]
    weights = [fit([each for each, of in zip(examples, folds, strict=True) if of != fold]) for fold in range(FOLDS)]
    return [judged(each, weights[fold]) for each, fold in zip(searches, folds, strict=True)]


def print_figures(searches: Sequence[Search], found: Sequence[measured.Found]) -> None:
    """Print the figures of each source, and of all."""
    columns = ("ece", "auc", "kept", "refused", *(f"refused_{kind}" for kind in measured.UNANSWERABLE))
    print(f"{'':12}{'n':>6}" + "".join(f"{column:>20}" for column in columns))
    for source in (*dict.fromkeys(each.source for each in searches), "all"):
        of_one = [one for each, one in zip(searches, found, strict=True) if source in (each.source, "all")]
        values = figures(of_one)
        told = ("" if values[column] is None else f"{values[column]:.3f}" for column in columns)
        print(f"{source:12}{len(of_one):6}" + "".join(f"{value:>20}" for value in told))


def write(weights: Weights, path: Path) -> None:
    """Replace the weights in the source of `memos.search.relevance`."""
    text = path.read_text(encoding="utf-8")
    for name, values in (("_ANSWERABLE", weights.answerable), ("_HIT", weights.hit)):
        lines = "".join(f'    "{key}": ({own:.3f}, {other:.3f}),\n' for key, (own, other) in values.items())
        text = re.sub(rf"^{name} = \{{\n.*?^\}}$", f"{name} = {{\n{lines}}}", text, flags=re.M | re.S)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Ask, print the figures of held-out folds, fit to everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chats", type=Path, nargs="+", help="LoCoMo files and BEAM chats")
    parser.add_argument("--lives", type=Path, help="stories of `benchmarks.lifecycle`")
    parser.add_argument("--preferences", type=Path, help="a file of PrefEval")
    parser.add_argument("--searches", type=Path, help="read the searches from this file; if it is not there, write it")
    parser.add_argument("--write", action="store_true", help="replace the weights in memos/search/relevance.py")
    arguments = parser.parse_args()
    if arguments.searches is not None and arguments.searches.exists():
        with arguments.searches.open("rb") as file:
            searches = pickle.load(file)
    else:
        searches = [each for each in collect(arguments) if each.ranked]
        if arguments.searches is not None:
            with arguments.searches.open("wb") as file:
                pickle.dump(searches, file)
    examples = [example(each) for each in searches]
    print_figures(searches, by_folds(searches, examples))
    weights = fit(examples)
    print("\nThe weights fitted to everything, on what they were fitted to:")
    print_figures(searches, [judged(each, weights) for each in searches])
    if arguments.write:
        write(weights, SOURCE)


if __name__ == "__main__":
    main()
