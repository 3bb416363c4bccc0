"""Steps shared by jobs that extract facts: extract outside of transactions, store the results in one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from pydantic import BaseModel, Field

from memos.core.filters import Condition, Op
from memos.core.ports import ArmQuery, ChatMessage, Embedder, Vector, VectorIndex, VectorSearch
from memos.core.text import rendering
from memos.core.types import Arm, Fact, Item
from memos.errors import BackendUnavailable
from memos.llm.client import LLMClient
from memos.llm.usage import Call, UsageMeter
from memos.memcube import facts
from memos.memcube.changes import Change
from memos.memcube.facts import event_time
from memos.memcube.ledger import cubes, items
from memos.memcube.profiles.template import Template
from memos.memcube.profiles.views import template_of
from memos.reader.facts import llm
from memos.reader.facts.extractor import Extraction, FactReader
from memos.reader.masking import Masking
from memos.scheduler import consolidation
from memos.scheduler.consolidation import Outcome, SimilarItem, Verdict, Verdicts
from memos.scheduler.task import TaskRun

_NEAREST = 5
LEAST_COSINE = 0.55  # facts with a lower similarity are unrelated and not judged


@dataclass(frozen=True, slots=True)
class SimilarFacts:
    """Finds similar facts in the vector index; facts that are not indexed yet are merged by a later consolidation."""

    index: VectorIndex
    embedder: Embedder

    def of(self, cube: str, facts: Sequence[Fact]) -> list[list[SimilarItem]]:
        if not facts:
            return []
        vectors = self.embedder.embed_documents([rendering.with_speaker(fact.subject, fact.memory) for fact in facts])
        return [self._near(cube, fact, vector) for fact, vector in zip(facts, vectors, strict=True)]

    def _near(self, cube: str, fact: Fact, vector: Vector) -> list[SimilarItem]:
        kind = Condition("type", Op.EQ, str(fact.type))
        request = VectorSearch((cube,), (ArmQuery(Arm.TURN, vector),), _NEAREST, kind, None, live=True)
        [found] = self.index.search(request)
        return [SimilarItem(point.item, point.score) for point in found if point.score >= LEAST_COSINE]


NearOf = Callable[[str, Sequence[Fact]], list[list[SimilarItem]]]  # similar items for each fact of a cube


def question(prompt: str, lines: Iterable[str]) -> list[ChatMessage]:
    data = "\n".join(["<data>", *lines, "</data>"])
    return [ChatMessage("system", instructions(prompt)), ChatMessage("user", data)]


def instructions(prompt: str) -> str:
    return (files("memos.scheduler") / "prompts" / f"{prompt}.txt").read_text(encoding="utf-8")


def shortened(text: str, chars: int) -> str:
    """Return the start of a text on one line, with angle brackets replaced so that it cannot close `<data>`."""
    return " ".join(text[:chars].replace("<", "‹").replace(">", "›").split())


def meter_of(run: TaskRun, purpose: str) -> UsageMeter:
    def spend(call: Call) -> None:
        if not call.cached:
            run.spend(1, call.tokens.prompt, call.tokens.completion)

    return UsageMeter(purpose, cube=run.task.cube, task=run.task.id, tell=spend, check=run.check_budget)


PROMPT = "judge-1"
_MOST_PAIRS = 20
_SHOWN_CHARS = 300


class PairVerdict(BaseModel):
    """The verdict on one numbered pair."""

    pair: int
    verdict: Verdict


class Judgement(BaseModel):
    """The verdicts of one answer."""

    verdicts: list[PairVerdict] = Field(default_factory=list, max_length=200)


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides pairs of similar facts with at most one model call; without a model nothing is decided."""

    asker: Callable[[], LLMClient | None]

    def decide(
        self, facts: Sequence[Fact], pairs: Collection[tuple[int, str]], known: Mapping[str, Item], meter: UsageMeter
    ) -> Verdicts:
        asker = self.asker() if pairs else None
        if asker is None:
            return {}
        asked = list(pairs)[:_MOST_PAIRS]
        lines = [_line(number, facts[place], known[item]) for number, (place, item) in enumerate(asked, start=1)]
        answer = asker.complete_json(question(PROMPT, lines), Judgement, meter=meter)
        return {asked[one.pair - 1]: one.verdict for one in answer.verdicts if 1 <= one.pair <= len(asked)}


def _line(number: int, fact: Fact, item: Item) -> str:
    said = fact.valid_from or fact.said_at
    return f"{number}. stored ({event_time(item):%F}): {_shown(item.memory)} | new ({said:%F}): {_shown(fact.memory)}"


def _shown(text: str) -> str:
    return shortened(text, _SHOWN_CHARS)


@dataclass(frozen=True, slots=True)
class ReadingInput:
    """Messages with sources, and the time zone and template of their cube.

    No facts are extracted from messages in `context`; `before` is a summary of earlier messages.
    """

    messages: Sequence[Item]
    zone: ZoneInfo
    template: Template | None
    context: frozenset[str] = frozenset()
    before: str = ""


@dataclass(frozen=True, slots=True)
class ExtractedFacts:
    extraction: Extraction
    near: Sequence[Sequence[SimilarItem]]
    verdicts: Verdicts


@dataclass(frozen=True, slots=True)
class FactPipeline:
    """Extracts facts with a model or by patterns; jobs call `settled` after storing them, to index them soon."""

    reader: FactReader
    judge: Judge
    near: NearOf
    has_model: Callable[[], bool]
    settled: Callable[[], object]
    masking: Callable[[str], Masking]

    def read(self, run: TaskRun, shown: ReadingInput, *, asks: bool) -> ExtractedFacts:
        """Extract facts from messages, find similar stored ones, and judge pairs; no model is called without `asks`."""
        meter = meter_of(run, "reader")
        run.check_budget()
        reader = self.reader if asks else FactReader(lambda: None)
        extraction = reader.read(shown.messages, shown.zone, meter, shown.before, shown.template, shown.context)
        run.note = extraction.note
        if extraction.model is not None:
            extraction = _masked(extraction, self.masking(run.task.cube))
        run.check_cancelled(0.4)
        found, cube = extraction.facts, run.task.cube
        near = self._near(cube, found)
        with run.ledger.read() as connection:
            known = items.current(connection, [cube], {one.item for close in near for one in close})
        run.check_budget()
        # A model that cannot write facts does not decide which of them replace others, either.
        writes = extraction.reader == llm.READER
        pairs = consolidation.undecided(found, near, known) if writes else ()
        verdicts = self.judge.decide(found, pairs, known, meter)
        run.check_cancelled(0.7)
        return ExtractedFacts(extraction, near, verdicts)

    def _near(self, cube: str, found: Sequence[Fact]) -> list[list[SimilarItem]]:
        try:
            return self.near(cube, found)
        except BackendUnavailable:
            # Facts with keys are still matched; duplicates in other words stay until a later consolidation.
            return [[] for _ in found]


def _masked(found: Extraction, masking: Masking) -> Extraction:
    """Mask a model's output again: it may join parts of a secret that were not recognised separately."""
    return replace(
        found,
        facts=tuple(masking.fact("fact", fact) for fact in found.facts),
        summary=None if found.summary is None else masking.whole("summary", found.summary),
        output=None if found.output is None else masking.whole("output", found.output),
    )


def to_read(connection: sa.Connection, cube: str, messages: Sequence[Item]) -> ReadingInput:
    sources = items.sources_of(connection, [message.id for message in messages])
    told = [replace(message, sources=sources.get(message.id, ())) for message in messages]
    zone = cubes.zones(connection, [cube]).get(cube, ZoneInfo("UTC"))
    return ReadingInput(told, zone, template_of(connection, cube))


def keep(change: Change, learnt: ExtractedFacts, shown: Iterable[str]) -> Outcome:
    """Store facts with a record of the extraction and its messages. Idempotent."""
    found = learnt.extraction
    record = facts.keep_record(change, found.reader, found.model or "", found.output or "", shown)
    kept = [replace(fact, extraction=record) for fact in found.facts]
    return consolidation.consolidate(change, kept, learnt.near, learnt.verdicts)


def told(outcome: Outcome, rejected: int) -> dict[str, object]:
    return {**asdict(outcome), "rejected": rejected}
