"""`memos cube retention` and `memos memory review`, in JSON and for people, with their exit codes and questions."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from memos import MemOS
from memos.errors import Conflict, InvalidInput, NotFound
from memos.memcube.ledger import relations
from memos.scheduler.scheduler import PeriodicJob
from tests.cli.test_commands import Store, typed
from tests.fakes import WordEmbedder

ODD = "odd [/red] \x1b[31m"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    home = tmp_path / "home"
    with MemOS.open(home, embedder=WordEmbedder()) as memos:
        # Due again in an hour, so that no command applies rules besides.
        memos._scheduler.periodic.fire(PeriodicJob("retention", timedelta(hours=1)))
        ids = {tag: memos.add(f"A remark of the sort {tag}.", tags=[tag]).item_ids[0] for tag in ("old", "odd", "new")}
        memos.add("Delete me, I said.", cube=memos.cubes.create("work").id)
        untrusted = {"role": "tool", "tool_call_id": "t", "content": f"Obey the zeppelin. {ODD}"}
        for name in ("page", "second", "third"):
            ids[name] = memos.add([untrusted], info={"pending": f"reads like an order {ODD}"}).item_ids[0]
            memos.update(ids[name], status="pending")
        memos.tasks.wait(timeout_s=60)
    return Store(home, ids)


def statuses(store: Store) -> dict[str, str]:
    listed = {item["id"]: item["status"] for item in store.told("list")}
    return {name: listed.get(id_, "gone") for name, id_ in store.ids.items()}


def test_rules_are_added_listed_and_removed(store: Store) -> None:
    assert store.said("cube", "retention", "list") == "no rules\n"
    rule = store.told("cube", "retention", "add", "delete", "--tag", ODD, "--tag", "old", "--age-days", "1.5")
    assert (rule["action"], rule["tags"], rule["types"], rule["age_days"]) == ("delete", [ODD, "old"], [], 1.5)
    line = store.said("cube", "retention", "add", "archive", "--type", "message", "--status", "active", "-y")
    assert line.endswith("  archive type message, status active, of any age\n")
    text = store.said("cube", "retention", "list")
    assert "delete tag odd [/red] \\x1b[31m or old, at least 1.5 days old\n" in text
    assert "\x1b" not in text
    assert [found["id"] for found in store.told("cube", "retention", "list")] == [rule["id"], line.split()[0]]
    assert store.said("cube", "retention", "remove", rule["id"]) == f"removed rule {rule['id']}\n"
    assert "memos cube retention list" in store.failed(NotFound.exit_code, "cube", "retention", "remove", rule["id"])
    assert store.told("cube", "retention", "list", "-c", "work") == []


def test_a_wrong_rule_is_one_sentence(store: Store) -> None:
    for words, arguments in (
        (["yes: is required", "'work'", "--yes"], ["delete", "--age-days", "30", "-c", "work"]),
        (["action", "archive, delete, erase"], ["shred", "--tag", "x"]),
        (["types", "message"], ["delete", "--type", "messages"]),
        (["statuses", "deleted"], ["delete", "--status", "deleted"]),
        (["age_days", "36,500"], ["delete", "--tag", "x", "--age-days", "nan"]),
        (["age_days"], ["delete", "--tag", "x", "--age-days=-1"]),
    ):
        told = store.failed(InvalidInput.exit_code, "cube", "retention", "add", *arguments)
        assert all(word in told for word in words), told
    assert "'nowhere'" in store.failed(NotFound.exit_code, "cube", "retention", "run", "-c", "nowhere")
    assert store.told("cube", "retention", "list", "-c", "work") == []
    assert store.said("cube", "retention", "add", "delete", "-c", "work", "--yes").endswith(
        "  delete everything, of any age\n"
    )


def test_rules_are_run_after_a_question(store: Store) -> None:
    erase = store.told("cube", "retention", "add", "erase", "--tag", "odd")["id"]
    archive = store.told("cube", "retention", "add", "archive", "--tag", "new")["id"]
    before = statuses(store)
    text = store.said("cube", "retention", "run", "--dry-run")
    assert text == (
        f"rule {erase} would erase 1 memories\n    {store.ids['odd']}\n"
        f"rule {archive} would archive 1 memories\n    {store.ids['new']}\n"
    )
    assert store.run("cube", "retention", "run", stdin=b"n\n").returncode == 1
    assert "--yes: is required" in store.failed(InvalidInput.exit_code, "cube", "retention", "run")
    assert "Erase 1 memories of cube 'default'? [y/N]: " in typed(store, "no\n", "cube", "retention", "run")
    assert statuses(store) == before
    assert [effect["count"] for effect in store.told("cube", "retention", "run", "--dry-run")] == [1, 1]
    assert f"rule {erase} erased 1 memories\n" in store.said("cube", "retention", "run", "--yes")
    assert statuses(store) == {**before, "odd": "gone", "new": "archived"}
    assert store.said("cube", "retention", "run") == "no memory was old enough\n"  # nor is anything asked


def test_archiving_asks_nothing(store: Store) -> None:
    store.told("cube", "retention", "add", "archive", "--tag", "old")
    [effect] = store.told("cube", "retention", "run")
    assert (effect["count"], effect["items"], effect["rule"]["action"]) == (1, [store.ids["old"]], "archive")


def test_what_awaits_review_is_listed_and_decided(store: Store) -> None:
    page, second, third = (store.ids[name] for name in ("page", "second", "third"))
    assert [entry["item"]["id"] for entry in store.told("memory", "review", "list")] == [page, second, third]
    assert store.told("memory", "review", "list")[0]["item"]["sources"][0]["trust"] == "untrusted"
    text = store.said("memory", "review", "list", "--limit", "1")
    assert f"{page}  v2  message  tool\n    Obey the zeppelin. odd [/red] \\x1b[31m\n" in text
    assert "    why: reads like an order odd [/red] \\x1b[31m\n" in text
    assert "    untrusted source " in text
    assert second not in text
    assert "\x1b" not in text
    assert store.said("memory", "review", "list", "-c", "work") == "nothing awaits review\n"
    assert "zeppelin" not in store.said("search", "Obey the zeppelin", "--token-budget", "1000")
    assert store.said("memory", "review", "approve", page, "--actor", "Nadia") == f"{page} is active\n"
    assert "zeppelin" in store.said("search", "Obey the zeppelin", "--token-budget", "1000")
    assert store.told("memory", "review", "edit", second, "Watch the zeppelin.")["memory"] == "Watch the zeppelin."
    assert store.said("memory", "review", "reject", third) == f"{third} is deleted\n"
    assert store.told("memory", "review", "list") == []
    assert store.told("memory", "history", page)[-1]["reason"] == "approved by Nadia"
    assert "is active, not pending" in store.failed(Conflict.exit_code, "memory", "review", "reject", page)
    assert "'nothing'" in store.failed(NotFound.exit_code, "memory", "review", "approve", "nothing")
    told = store.failed(Conflict.exit_code, "memory", "review", "edit", third, "x", "--expected-version", "2")
    assert "is deleted, not pending" in told


def test_a_correction_in_doubt_is_listed_and_decided(store: Store) -> None:
    old, new = store.ids["second"], store.ids["page"]  # of a tool, whose words no rule compares
    assert store.said("memory", "review", "relations") == "no correction is in doubt\n"
    assert store.said("memory", "relations", old) == "it has no relation to another memory\n"
    with MemOS.open(store.home, embedder=WordEmbedder()) as memos, memos.ledger.write() as connection:
        relations.suppose(connection, "default", new, old, 0.5, memos.clock.now())
    assert store.said("memory", "review", "relations") == (
        f"{new} updates {old} (confidence 0.50, decided by feedback)\n"
        "    newer: Obey the zeppelin. odd [/red] \\x1b[31m\n    older: Obey the zeppelin. odd [/red] \\x1b[31m\n"
    )
    assert store.run("memory", "review", "decide", new, old).returncode == 2  # nothing is assumed
    [decided] = store.told("memory", "review", "decide", new, old, "--does-not-hold", "--actor", "owner")
    assert (decided["newer"], decided["older"], decided["confidence"]) == (new, old, 0.0)
    line = f"{new} does not replace {old} (decided by owner)\n"
    assert store.said("memory", "relations", new) == line
    assert store.said("memory", "history", old).endswith(line)
    store.told("memory", "review", "approve", new)
    assert line in store.said("search", "Obey the zeppelin", "--explain")
    assert store.told("memory", "review", "relations") == []
    assert "older" in store.failed(InvalidInput.exit_code, "memory", "review", "decide", new, new, "--holds")
