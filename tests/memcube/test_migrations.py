"""A folder of the first schema opens with everything in it, split into sessions, its indexes made anew."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from memos import MemOS
from tests.fakes import FixedClock, WordEmbedder

TIMES = ("2024-05-01T10:00", "2024-05-01T10:05", "2024-05-01T18:00", "2024-05-03T09:00")


def opened(home: Path) -> MemOS:
    return MemOS.open(home, embedder=WordEmbedder(), clock=FixedClock())


def make_first_schema(home: Path) -> None:
    """Take away what the later migrations added, and the vector index that is made from it."""
    with sqlite3.connect(home / "ledger.db") as connection:
        later = (
            "console_sessions",
            "access_log",
            "key_usage",
            "mentions", "entity_aliases",
            "submissions",
            "repeats", "api_keys", "grants", "memberships", "identities", "file_items", "file_parts", "files",
            "retention_rules", "extraction_items", "extractions", "pages",
            "adapter_exclusions", "adapter_items", "adapters", "adapter_consents",
            "prefix_entries", "segments", "warmth", "tasks", "queues", "usage", "leases", "tombstone_backups",
            "backups",
        )  # fmt: skip
        for table in later:
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DROP INDEX ix_items_page")
        connection.execute("DROP INDEX ix_items_told")
        connection.execute("DROP INDEX uq_items_record")
        connection.execute("DROP INDEX ix_items_expiry")
        connection.execute("DROP INDEX ix_versions_ended")
        connection.execute("DROP INDEX ix_versions_pending")
        connection.execute("DROP INDEX ix_links_supposed")
        connection.execute("DROP INDEX ix_items_wanted")
        connection.execute("DROP INDEX ix_messages_speaker")
        connection.execute("DROP INDEX ix_messages_participant")
        connection.execute("DROP INDEX ix_cubes_owner")
        for table, column in (
            ("versions", "keywords"),
            ("items", "session"),
            ("items", "said_at"),
            ("conversations", "session"),
            ("conversations", "said_at"),
            ("conversations", "first_short"),
            ("cubes", "heat_tau_s"),
            ("cubes", "lone_until"),
            ("messages", "trust"),
            ("items", "pinned"),
            ("items", "cold"),
            ("items", "outdated"),
            ("cubes", "segments"),
            ("sources", "extraction_id"),
            ("cubes", "kind"),
            ("cubes", "redact_pii"),
            ("items", "reading"),
            ("items", "record_id"),
            ("items", "ttl_s"),
            ("items", "expires_at"),
            ("items", "searchable"),
            ("links", "confidence"),
            ("links", "decided_by"),
            ("tombstones", "forms"),
        ):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    connection.close()
    [space] = (home / "vector").iterdir()
    space.rename(space.with_name(space.name.rsplit("-", 1)[0]))


def test_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    said = [{"role": "user", "content": f"message number {n}", "chat_time": at} for n, at in enumerate(TIMES)]
    with opened(tmp_path) as memos:
        ids = memos.add(said, conversation="talk").item_ids
        alone = memos.add("said outside any conversation").item_ids[0]
        before = [memos.get(item) for item in ids]
    make_first_schema(tmp_path)
    with opened(tmp_path) as memos:
        after = [memos.get(item) for item in ids]
        assert [item.session for item in after] == [0, 0, 1, 2] == [item.session for item in before]
        assert [item.said_at for item in after] == [item.said_at for item in before]
        assert memos.get(alone).session is None
        assert memos.get(alone).said_at is not None
        assert [item.keywords for item in after] == [()] * 4
        assert memos.search("number 3").hits[0].item.id == ids[3]
        assert memos.maintenance.verify().clean
        later = memos.add(
            {"role": "user", "content": "and later", "chat_time": "2024-05-03T09:30"}, conversation="talk"
        ).item_ids[0]
        assert memos.get(later).session == 2
    assert len(list((tmp_path / "vector").iterdir())) == 1
