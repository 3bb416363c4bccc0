"""`memos evaluate`: questions about one's own memories, what they find, and what another embedder would change."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.cli.shared import Actor, AsJson, CubeName, Output, command, one_line, progress_bar, table
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import InvalidInput

if TYPE_CHECKING:
    from rich.table import Table

    from memos.kernel.evaluation import AskedQuestion, Evaluation, Score
    from memos.kernel.memos import MemOS

_SHOWN = 10
_CHARS = 100
_MOST_BYTES = 32 * 2**20
_EMBEDDERS = ("minilm", "e5")


@command
def evaluate(
    memos: MemOS,
    cube: CubeName = DEFAULT_CUBE,
    sample: Annotated[int, typer.Option(help="Most questions to make")] = 100,
    seed: Annotated[int, typer.Option(help="Another seed makes other questions")] = 0,
    questions: Annotated[
        Path | None, typer.Option(help='Own questions: a {"question": …, "contains": …} a line')
    ] = None,
    compare: Annotated[Path | None, typer.Option(help="Ask the questions of an earlier evaluation again")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the evaluation to a file, to compare with")] = None,
    embedder: Annotated[
        str | None, typer.Option(help="Ask also a temporary copy of the cube with this embedder: minilm or e5")
    ] = None,
    rerank: Annotated[bool | None, typer.Option("--rerank/--no-rerank", help="Use the configured reranker")] = None,
    with_model: Annotated[
        bool, typer.Option("--with-model", help="Let the reader model make a quarter of the questions")
    ] = False,
    actor: Actor = LOCAL_OWNER,
    as_json: AsJson = False,
) -> Output:
    if questions is not None and compare is not None:
        raise InvalidInput("--compare", "asks the questions of its file; leave out --questions")
    if embedder is not None and embedder not in _EMBEDDERS:
        raise InvalidInput("--embedder", f"must be one of {', '.join(_EMBEDDERS)}; got {embedder!r}")
    if save is not None and save.exists():
        raise InvalidInput("--save", f"{save} exists; name a new file")
    earlier = None if compare is None else _saved(compare)
    asked = _lines(questions) if questions is not None else None if earlier is None else earlier["questions"]
    how: dict[str, Any] = {"rerank": rerank, "actor": actor}
    with progress_bar("questions", as_json) as on_progress:
        found = memos.evaluation.run(
            cube=cube, questions=asked, sample=sample, seed=seed, with_model=with_model, on_progress=on_progress, **how
        )
    told = _as_dict(found)
    other = None
    if embedder is not None:
        with progress_bar("embedding and asking", as_json) as on_progress:
            other = _with_embedder(memos, cube, embedder, told["questions"], on_progress, how)
    if save is not None:
        _write(save, told)
    value: dict[str, Any] = {"evaluation": told}
    if earlier is not None:
        value["changed"] = _changed(earlier["questions"], told["questions"])
    if other is not None:
        value |= {"other": _as_dict(other), "changed": _changed(told["questions"], _as_dict(other)["questions"])}
    return Output(value, _shown(found, earlier, other, value.get("changed")))


def _as_dict(found: Evaluation) -> dict[str, Any]:
    from memos.api.serialization import view  # noqa: PLC0415

    told: dict[str, Any] = view(found)
    return told


def _with_embedder(
    memos: MemOS, cube: str, embedder: str, asked: Sequence[Mapping[str, Any]], on_progress: Any, how: Mapping[str, Any]
) -> Evaluation:
    """Return what the questions find in a copy of the cube with another embedder; the copy is removed."""
    from memos.core.settings import Neo4jSettings, QdrantSettings  # noqa: PLC0415
    from memos.kernel.memos import MemOS as Installation  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="hippocube-evaluate-") as folder:
        file = Path(folder) / "cube.memcube"
        memos.transfer.dump(cube, file, vectors=False, actor=how["actor"])
        alone = {
            "home": Path(folder) / "copy",
            "ledger_url": None,
            "qdrant": QdrantSettings(),
            "neo4j": Neo4jSettings(),
            "cube_passphrase": None,
            "embed": memos.settings.embed.model_copy(update={"model": embedder}),
        }
        with Installation.open(settings=memos.settings.model_copy(update=alone)) as copy:
            loaded = copy.transfer.load(file, cube="copy", trust=True)
            copy.maintenance.catch_up(on_progress=on_progress)
            return copy.evaluation.run(cube=loaded.cube, questions=asked, rerank=how["rerank"], on_progress=on_progress)


def _saved(path: Path) -> dict[str, Any]:
    raw = _read(path)
    try:
        told = json.loads(raw)
        told = told.get("evaluation", told)
        if not isinstance(told["questions"], list) or not isinstance(told["all"], dict):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput("--compare", f"{path} is no evaluation written by `memos evaluate --save`") from error
    return dict(told)


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise InvalidInput("--questions", f"{path}:{number} is no JSON") from error
    return found


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise InvalidInput(str(path), f"has more than {_MOST_BYTES:,} bytes")
        return raw.decode("utf-8")
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(str(path), "is not UTF-8") from error


def _write(path: Path, told: Mapping[str, Any]) -> None:
    """Write a new file that only its owner may read: questions repeat words of memories."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(told, file, ensure_ascii=False, indent=1)
    except OSError as error:
        raise InvalidInput("--save", f"{path} cannot be written ({error.strerror})") from error


def _changed(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the questions whose first answer has another place, those that lost most first."""
    was = {each["question"]: each.get("place") for each in before}
    moved = [
        {"question": each["question"], "before": was[each["question"]], "after": each["place"]}
        for each in after
        if each["question"] in was and was[each["question"]] != each["place"]
    ]
    return sorted(moved, key=lambda each: _reciprocal(each["after"]) - _reciprocal(each["before"]))


def _reciprocal(place: int | None) -> float:
    return 0.0 if place is None else 1 / place


_COLUMNS = ("", "questions", "first", "in 5", "in 10", "in 20")


def _row(name: str, score: Score | Mapping[str, Any]) -> tuple[str, ...]:
    told = score if isinstance(score, Mapping) else {each: getattr(score, each) for each in score.__slots__}
    return name, str(told["questions"]), *(f"{told[each]:.3f}" for each in ("first", "in_5", "in_10", "in_20"))


def _shown(
    found: Evaluation,
    earlier: Mapping[str, Any] | None,
    other: Evaluation | None,
    changed: Sequence[Mapping[str, Any]] | None,
) -> Iterator[str | Table]:
    yield f"Questions about {found.memories} memories of {found.cube}, embedded by {found.embedder}"
    rows = [_row(str(kind), score) for kind, score in found.by_kind.items()]
    rows.append(_row("all", found.all))
    if earlier is not None:
        rows.append(_row(f"before ({earlier['embedder']}, {earlier['version']})", earlier["all"]))
    if other is not None:
        rows.append(_row(f"with {other.embedder}", other.all))
    yield table(*_COLUMNS, rows=rows)
    yield _times(found)
    if other is not None:
        yield f"with {other.embedder}: {_times(other)}"
    kept = ", ".join(f"{share:.0%} at {least}" for least, share in found.kept.items())
    yield f"Answers found that a `min_relevance` keeps: {kept}"
    if found.lost_at:
        yield f"Lost at: {', '.join(f'{stage} {count}' for stage, count in found.lost_at.items())}"
    if changed is not None:
        worse = [each for each in changed if _reciprocal(each["after"]) < _reciprocal(each["before"])]
        yield f"{len(changed) - len(worse)} better, {len(worse)} worse"
        yield from (
            f"  {_place(each['before'])} → {_place(each['after'])}  {each['question']}" for each in worse[:_SHOWN]
        )
    missed = [each for each in found.questions if each.place is None]
    if missed and changed is None:
        yield "Not found among 20:"
        yield from map(_missed, missed[:_SHOWN])
        if len(missed) > _SHOWN:
            yield f"and {len(missed) - _SHOWN} more; --json lists them all"


def _times(found: Evaluation) -> str:
    over = "" if found.over_embedding is None else f", {found.over_embedding:.1f} times its embedding"
    return f"a search takes {found.p50_ms:.1f} ms{over} (95 %: {found.p95_ms:.1f} ms)"


def _place(place: int | None) -> str:
    return "–" if place is None else str(place)


def _missed(asked: AskedQuestion) -> str:
    told = f"  {one_line(asked.question, _CHARS)}"
    return f"{told}  (memos search … --why-not {asked.answers[0]})" if asked.answers else told
