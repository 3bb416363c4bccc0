"""What a memory and an add cost on servers: `python -m benchmarks.capacity --memories 20000`.

Fills PostgreSQL and Neo4j, started for it on loopback, and the vector index (embedded, or the Qdrant server that
QDRANT_URL names) with synthetic messages of about 18 words. Prints bytes for each memory of each table, its indexes,
Neo4j's files and the vector folder; then, of single exchanges of two messages, the log's bytes, flushes and
transactions, and how many searches one thread gets through. Bytes hardly depend on the machine; the rest does.

`--imports 5000` measures instead how fast an import into files is: chats of everyday talk are imported in parts, and
after each part the embedder alone embeds the very texts that it embedded, in batches of as many. `import_over_embed` is
how many memories an import stores and indexes a second over how many the embedder alone gets through, `cpu_over_embed`
the same by processor time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.dialogues import Dialogues
from benchmarks.everyday import Everyday
from benchmarks.report import Report, figures_table, output_parser, positive, progress, run
from benchmarks.servers import Servers, allocated, database, embedded, started
from benchmarks.timing import TOP_K, Overheard
from benchmarks.volumes import BagOfWords, Volume, build_graphs, fill
from memos import MemOS
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.ports import Embedder
from memos.core.settings import Settings, TaskSettings
from memos.kernel.importing import import_export

_SIZES = (
    "SELECT relname, pg_relation_size(oid), pg_table_size(oid) - pg_relation_size(oid), pg_indexes_size(oid)"
    " FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    " ORDER BY pg_total_relation_size(oid) DESC"
)
_COUNTS = (
    "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, wal_sync, wal_fpi, xact_commit, blks_hit + blks_read, blks_read"
    " FROM pg_stat_wal, pg_stat_database WHERE datname = current_database()"
)
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hippocube'"
_VACUUMING = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%'"
_SESSIONS_END_S = 10
_VACUUMS_END_S = 60
_NEO4J_FILES = {
    "nodes": "neostore.nodestore", "relationships": "neostore.relationship", "properties": "neostore.propertystore",
    "indexes": "schema", "counts": "neostore.counts",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counts:
    """What PostgreSQL counted up to a moment, or between two."""

    wal_bytes: float
    wal_flushes: float
    wal_full_pages: float
    transactions: float
    blocks: float
    blocks_from_disk: float

    def __sub__(self, before: Counts) -> Counts:
        return Counts(*(mine - theirs for mine, theirs in zip(astuple(self), astuple(before), strict=True)))

    def each(self, times: int) -> dict[str, float]:
        """Return the counts for one of so many."""
        return {name: round(count / times, 2) for name, count in asdict(self).items()}


def measure(arguments: argparse.Namespace) -> Report:
    """Fill, count bytes, then count what adds and searches cost; or measure an import."""
    embedder = MiniLmEmbedder(threads=Settings().embed.threads)
    if arguments.imports is not None:
        return measure_import(embedder, arguments)
    with (
        started() as servers,
        tempfile.TemporaryDirectory(prefix="hippocube-bench-") as folder,
        servers.installation(Path(folder) / "home") as settings,
    ):
        return measure_on(servers, settings, embedder, arguments)


def measure_on(servers: Servers, settings: Settings, embedder: Embedder, arguments: argparse.Namespace) -> Report:
    """Return the figures of one installation on the given servers."""
    volume = Volume(arguments.memories, min(arguments.cubes, arguments.memories))
    dialogues = Dialogues(arguments.seed)
    empty_graph = neo4j_bytes(servers)
    fill_s = fill(settings, volume, dialogues, BagOfWords(embedder, arguments.seed))
    build_graphs(settings, embedder)
    tables = table_bytes(servers, settings)
    graph = {name: size - empty_graph.get(name, 0) for name, size in neo4j_bytes(servers).items()}
    sizes = {
        "ledger": sum(sum(parts.values()) for parts in tables.values()),
        "graph": sum(graph.values()),
        "vector": allocated(settings.home / "vector") if settings.qdrant.url is None else None,
    }
    memories = volume.memories
    each = {store: None if size is None else round(size / memories, 1) for store, size in sizes.items()}
    by_table = {
        name: {part: round(size / memories, 1) for part, size in parts.items()} for name, parts in tables.items()
    }
    by_file = {name: round(size / memories, 1) for name, size in graph.items()}
    adds = per_add(servers, settings, embedder, dialogues, arguments)
    searches = per_search(servers, settings, embedder, dialogues, arguments)
    figures = {
        "n": memories, "cubes": volume.cubes, "n_adds": arguments.adds, "n_searches": arguments.searches,
        "bytes_per_memory": each, "ledger_bytes_per_memory": by_table, "graph_bytes_per_memory": by_file,
        "an_add": adds, "a_search": searches, "fill_s": round(fill_s, 1), "stores": servers.stores(),
    }  # fmt: skip
    shown = {name: parts for name, parts in by_table.items() if sum(parts.values()) >= 1}
    tables_ = [
        figures_table("bytes a memory, by table of the ledger", ["rows", "more", "indexes"], shown),
        figures_table(
            "bytes a memory, by file of Neo4j", ["bytes"], {name: {"bytes": b} for name, b in by_file.items()}
        ),
        figures_table("bytes a memory", list(each), {"all": each}),
        figures_table("PostgreSQL, each", list(adds), {"add of two messages": adds}),
        figures_table("PostgreSQL, each", list(searches), {"search": searches}),
    ]
    return Report(figures, tables=tables_)


def table_bytes(servers: Servers, settings: Settings) -> dict[str, dict[str, int]]:
    """Return the bytes of each table's rows, what else belongs to it (long values, free space) and its indexes."""
    name = _database(settings)
    servers.postgres.sql(name, "VACUUM")
    lines = [line.split("|") for line in servers.postgres.sql(name, _SIZES).splitlines()]
    return {
        table: {"rows": int(rows), "more": int(more), "indexes": int(indexes)} for table, rows, more, indexes in lines
    }


def neo4j_bytes(servers: Servers) -> dict[str, int]:
    """Return the bytes of Neo4j's files by kind; it is stopped and started, since only that writes them all."""
    servers.neo4j.stop()
    folder = servers.neo4j.folder / "data" / "databases" / "neo4j"
    sizes = dict.fromkeys((*_NEO4J_FILES, "other"), 0)
    for path in folder.rglob("*"):
        if path.is_file():
            begins = path.relative_to(folder).as_posix()
            kind = next((kind for kind, start in _NEO4J_FILES.items() if begins.startswith(start)), "other")
            sizes[kind] += allocated(path)
    servers.neo4j.start()
    return sizes


def per_add(
    servers: Servers, settings: Settings, embedder: Embedder, dialogues: Dialogues, arguments: argparse.Namespace
) -> dict[str, float]:
    """Return what one add of two messages costs PostgreSQL, less what opening and closing costs."""
    with _without_vacuum(servers, _database(settings)):
        return _per_add(servers, settings, embedder, dialogues, arguments)


@contextmanager
def _without_vacuum(servers: Servers, name: str) -> Iterator[None]:
    """Keep PostgreSQL's own upkeep out of what is counted: it comes when it likes, and writes more than many adds."""
    servers.postgres.sql(name, "ALTER SYSTEM SET autovacuum = off")
    servers.postgres.sql(name, "SELECT pg_reload_conf()")
    end = time.monotonic() + _VACUUMS_END_S
    try:
        while servers.postgres.sql(name, _VACUUMING) != "0":
            if time.monotonic() > end:
                raise RuntimeError("PostgreSQL's vacuum does not end; nothing can be counted.")
            time.sleep(0.05)
        yield
    finally:
        servers.postgres.sql(name, "ALTER SYSTEM RESET autovacuum")
        servers.postgres.sql(name, "SELECT pg_reload_conf()")


def _per_add(
    servers: Servers, settings: Settings, embedder: Embedder, dialogues: Dialogues, arguments: argparse.Namespace
) -> dict[str, float]:
    log = servers.neo4j.folder / "data" / "transactions" / "neo4j"
    settings = settings.model_copy(update={"tasks": TaskSettings(workers=0)})  # what is done later is not counted
    with MemOS.open(settings=settings, embedder=embedder):
        pass  # what filling left to be done is done here, and not counted as what an opening costs
    start = counted(servers, settings)
    with MemOS.open(settings=settings, embedder=embedder):
        pass
    before, neo4j_before = counted(servers, settings), log_bytes(log)
    with MemOS.open(settings=settings, embedder=embedder) as memos:
        began = time.perf_counter()
        for _ in progress(range(arguments.adds), "adding"):
            memos.add(dialogues.messages(2), cube="cube-0", conversation="measured")
        spent_s = time.perf_counter() - began
    opening = before - start
    found = (counted(servers, settings) - before - opening).each(arguments.adds)
    found["neo4j_log_bytes"] = round((log_bytes(log) - neo4j_before) / arguments.adds)
    return {**found, "adds_per_s": round(arguments.adds / spent_s, 1)}


def per_search(
    servers: Servers, settings: Settings, embedder: Embedder, dialogues: Dialogues, arguments: argparse.Namespace
) -> dict[str, float]:
    """Return what one search costs PostgreSQL, and how many one thread gets through."""
    before = counted(servers, settings)
    with MemOS.open(settings=settings, embedder=embedder) as memos:
        began = time.perf_counter()
        for _ in progress(range(arguments.searches), "searching"):
            memos.search(dialogues.question(), cubes=["cube-0"], top_k=TOP_K)
        spent_s = time.perf_counter() - began
    found = (counted(servers, settings) - before).each(arguments.searches)
    return {
        **{name: found[name] for name in ("transactions", "blocks", "blocks_from_disk")},
        "searches_per_s": round(arguments.searches / spent_s, 1),
    }


def counted(servers: Servers, settings: Settings) -> Counts:
    """Return PostgreSQL's counters, complete since every session that counted has ended.

    A checkpoint comes first, so that every stretch between two counts begins with no full page in the log: otherwise
    the one that happens to follow a checkpoint pays for the pages of the others.
    """
    name, end = _database(settings), time.monotonic() + _SESSIONS_END_S
    while servers.postgres.sql(name, _SESSIONS) != "0":
        if time.monotonic() > end:
            raise RuntimeError("Sessions of the installation stay open; nothing can be counted.")
        time.sleep(0.05)
    servers.postgres.sql(name, "CHECKPOINT")
    return Counts(*(float(count) for count in servers.postgres.sql(name, _COUNTS).split("|")))


def log_bytes(folder: Path) -> int:
    """Return the length of Neo4j's transaction logs."""
    return sum(path.stat().st_size for path in folder.glob("neostore.transaction.db.*"))


_PARTS = 5
_EMBEDDED_AT_ONCE = 256


def measure_import(embedder: Embedder, arguments: argparse.Namespace) -> Report:
    """Return how fast an import is beside the embedder alone."""
    spent = {"import": [0.0, 0.0], "embed": [0.0, 0.0]}

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        spent[what][0] += time.perf_counter() - wall
        spent[what][1] += time.process_time() - cpu

    overheard, texts, stored = Overheard(embedder), 0, 0
    with tempfile.TemporaryDirectory(prefix="hippocube-bench-") as folder:
        files = _chats(Path(folder), arguments)
        with MemOS.open(settings=embedded(Path(folder) / "home"), embedder=overheard) as memos:
            for file in progress(files, "importing"):
                overheard.texts.clear()
                with timed("import"):
                    stored += import_export(memos, file, cube="default").added
                told = list(overheard.texts)
                texts += len(told)
                with timed("embed"):
                    for start in range(0, len(told), _EMBEDDED_AT_ONCE):
                        embedder.embed_documents(told[start : start + _EMBEDDED_AT_ONCE])
    rates = {f"{what}_per_s": round(stored / wall, 1) for what, (wall, _) in spent.items()}
    figures = {
        "n": stored, "texts": texts, **rates,
        "import_over_embed": round(spent["embed"][0] / spent["import"][0], 3),
        "cpu_over_embed": round(spent["embed"][1] / spent["import"][1], 3),
        "cpu_s": {what: round(cpu, 1) for what, (_, cpu) in spent.items()},
    }  # fmt: skip
    shown = {name: {"is": value} for name, value in figures.items() if not isinstance(value, dict)}
    return Report(figures, tables=[figures_table("an import", ["is"], shown)])


def _chats(folder: Path, arguments: argparse.Namespace) -> list[Path]:
    """Write chats of so many messages as files of about the same length."""
    talk = Everyday(arguments.seed, None, datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC))
    files, left = [], arguments.imports
    for part in range(_PARTS, 0, -1):
        file, lines, wanted = folder / f"part{part}.jsonl", [], left // part
        left -= wanted
        for session in talk.sessions():
            said = [
                {"role": each.role, "name": each.name, "content": each.text, "chat_time": each.at.isoformat()}
                for each in session.messages[:wanted]
                if each.at is not None
            ]
            lines.append(json.dumps({"id": session.name, "messages": said}))
            wanted -= len(said)
            if not wanted:
                break
        file.write_text("\n".join(lines), encoding="utf-8")
        files.append(file)
    return files


def _database(settings: Settings) -> str:
    assert settings.ledger_url is not None
    return database(settings.ledger_url.get_secret_value())


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments."""
    parser = output_parser(__doc__)
    parser.add_argument("--memories", type=positive, default=20_000, metavar="N")
    parser.add_argument("--cubes", type=positive, default=20, help="cubes they are in (default 20)")
    parser.add_argument("--adds", type=positive, default=200, help="adds that are counted (default 200)")
    parser.add_argument("--searches", type=positive, default=300, help="searches that are counted (default 300)")
    parser.add_argument("--imports", type=positive, metavar="N", help="measure an import of N messages instead")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    return run("capacity", parse(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
