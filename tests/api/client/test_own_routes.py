"""Both clients on `/api/v1` of a server that really listens: memories, cubes, sharing, users, keys, tasks, events."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memos.api.client import AsyncMemOSClient, MemOSClient
from memos.core.clock import new_id
from memos.errors import Conflict, InvalidInput, MemosError, NotFound, PermissionDenied
from tests.api.client.conftest import Listening, Open


def test_what_is_added_is_found_corrected_and_taken_back(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    cube = new_id()
    client.cubes.create(cube, description="for a walk")
    receipt = client.memories.add(
        [{"role": "user", "name": "Ana", "content": "The heron nests at the mill."}], cube=cube, tags=["birds"]
    )
    (item,) = receipt.item_ids
    found = client.memories.search("Where does the heron nest?", cubes=[cube], token_budget=200)
    assert [hit.item.id for hit in found] == [item]
    assert found[0].sources[0].passage == "The heron nests at the mill."
    assert "heron" in found.context
    assert client.memories.search("Where does the heron nest?", cubes=[cube], min_relevance=1).hits == ()
    with pytest.raises(InvalidInput, match="min_relevance"):
        client.memories.search("heron", cubes=[cube], min_relevance=1.5)
    before = datetime.now(UTC)
    changed = client.memories.update(item, "The heron nests at the weir.", expected_version=1, tags=["birds", "river"])
    assert (changed.version, changed.tags) == (2, ("birds", "river"))
    with pytest.raises(Conflict):
        client.memories.update(item, "It moved.", expected_version=1)
    old = client.memories.search("heron", cubes=[cube], as_of=before)
    assert old[0].item.memory == "The heron nests at the mill."
    assert client.memories.rollback(item).memory == "The heron nests at the mill."
    assert [version.version for version in client.memories.history(item)] == [1, 2, 3]
    assert client.memories.get(item).created_at.tzinfo is not None
    assert client.memories.list(cube=cube, filter={"tags": {"contains": "river"}}) == []
    assert client.memories.delete(item).item_ids == (item,)
    assert client.memories.list(cube=cube, limit=5) == []


def test_records_and_times_to_live(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    cube = new_id()
    client.cubes.create(cube)
    made = client.records.put("birds/heron", "The heron nests at the mill.", cube=cube, info={"seen": {"by": ["Ana"]}})
    assert (made.record_id, made.version, made.info) == ("birds/heron", 1, {"seen": {"by": ["Ana"]}})
    assert client.records.put("birds/heron", made.memory, cube=cube, info=made.info) == made
    with pytest.raises(Conflict):
        client.records.put("birds/heron", "It moved.", cube=cube, expected_version=2)
    both = [
        {"id": "birds/swift", "memory": "The swift left.", "ttl_s": 3_600},
        {"id": "x", "memory": "y", "index": False},
    ]
    swift, _ = client.records.put_many(both, cube=cube)
    assert swift.expires_at is not None
    again = client.records.get("birds/swift", cube=cube, refresh_ttl=True)
    assert again.expires_at > swift.expires_at
    assert client.records.get_many(["x", "none", "birds/heron"], cube=cube)[1] == made
    assert [each.record_id for each in client.records.list("birds/", cube=cube, filter={"seen.by": "Ana"})] == [
        "birds/heron"
    ]
    assert [each.record_id for each in client.records.list(cube=cube, after="birds/heron", limit=1)] == ["birds/swift"]
    assert client.records.search("Where does the heron nest?", "birds/", cube=cube)[0].item == made
    assert [(one.prefix, one.records) for one in client.records.prefixes(cube=cube, depth=1)] == [("birds/", 2)]
    assert client.records.delete("birds/heron", cube=cube, reason="flown") == made.id
    assert [version.reason for version in client.records.history("birds/heron", cube=cube)] == ["added", "flown"]
    assert len(client.records.delete_many(["birds/swift", "none"], cube=cube)) == 1
    with pytest.raises(NotFound) as told:
        client.records.get("birds/heron", cube=cube)
    assert told.value.name == "birds/heron"
    item = client.memories.add("I am in Rome.", cube=cube, ttl_s=3_600).item_ids[0]
    assert client.memories.get(item).expires_at is not None
    assert client.memories.update(item, ttl_s=None).expires_at is None


def test_words_of_other_programs_are_taken(listening: Listening, opened: Open) -> None:
    memories = opened(listening.url, listening.admin).memories
    added = memories.add("I live in Porto.", user_id="ana", conversation_id="c", metadata={"a": 1}, infer=True)
    item = added.item_ids[0]
    found = memories.get(memory_id=item)
    assert (found.cube, found.conversation, found.info, bool(added.task)) == ("ana", "c", {"a": 1}, True)
    for where in ({}, {"cube": "ana"}, {"cubes": "ana"}):
        assert len(memories.search("Porto", user_id="ana", limit=1, **where)) == 1
    assert memories.update(id=item, metadata={"a": 2}, agent_id="ana").info == {"a": 2}
    told = memories.feedback("No, in Braga.", ids=[item], user_id="ana", timestamp="2026-01-03T00:00:00Z")
    assert told.related == (item,)
    assert memories.history(memory_id=item) == memories.history(item)
    # Tiers change in the background.
    assert [item.id for item in memories.list(user_id="ana")] == [item.id for item in memories.list(user="ana")]
    assert item in memories.purge(memory_id=item).item_ids
    with pytest.raises(InvalidInput, match="user_id: is another word for `user`"):
        memories.search("Porto", user="ana", user_id="ben")
    with pytest.raises(TypeError, match="unexpected keyword argument 'usr'"):
        memories.search("Porto", usr="ana")


def test_people_and_other_days(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    cube = new_id()
    client.cubes.create(cube)
    paris, lyon = datetime(2025, 3, 1, tzinfo=UTC), datetime(2025, 6, 1, tzinfo=UTC)
    for text, at in (("I live in Paris with Robert.", paris), ("I moved to Lyon.", lyon)):
        message = {"role": "user", "name": "Maya", "content": text, "chat_time": at.isoformat()}
        client.memories.add([message], cube=cube)
    assert [each.name for each in client.graph.entities(cube=cube, text="rob").entities] == ["Robert"]
    assert client.graph.entity("maya", cube=cube).kind == "person"
    named = {edge.relation for edge in client.graph.neighbours("Maya", cube=cube).edges}
    assert "mentions" in named
    assert len(client.graph.view(cube=cube, limit=1).entities) == 1
    made = client.graph.merge("Robert", "Paris", cube=cube)
    assert client.graph.aliases(cube=cube) == [made]
    assert client.graph.split(made.id, cube=cube) == made
    assert client.graph.aliases(cube=cube) == []
    assert client.timeline.span(cube=cube).first == paris
    then = client.timeline.day("2025-04-01", cube=cube)
    assert [held.item.memory for held in then.memories] == ["I live in Paris with Robert."]
    assert client.timeline.day(cube=cube, stored=True).memories[0].item.memory == "I moved to Lyon."
    changed = client.timeline.difference(datetime(2025, 4, 1, tzinfo=UTC), cube=cube)
    assert [held.item.memory for held in changed.added] == ["I moved to Lyon."]
    assert client.timeline.life("Maya", cube=cube).name
    with pytest.raises(NotFound):
        client.graph.entity("Nobody", cube=cube)
    with pytest.raises(NotFound):
        client.timeline.span(cube="missing")


def test_feedback_and_erasing_with_its_receipt(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    cube = new_id()
    client.cubes.create(cube)
    first = client.memories.add("I live in Porto.", cube=cube).item_ids[0]
    correction = client.memories.feedback("No, I moved to Braga.", cube=cube)
    assert client.memories.get(correction.item_id).memory == "No, I moved to Braga."
    erased = client.memories.erase([first, correction.item_id])
    assert erased.state == "purged"
    assert set(erased.item_ids) >= {first, correction.item_id}
    again = client.memories.erase_receipt(erased.id)
    assert (again.id, again.forms, again.public_key) == (erased.id, erased.forms, erased.public_key)
    with pytest.raises(NotFound) as told:
        client.memories.get(first)
    assert (told.value.status, told.value.name) == (404, first)
    assert told.value.request_id


def test_relations_are_told_and_decided(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    cube = new_id()
    client.cubes.create(cube)
    old, new = (client.memories.add(f"The rent is {euros}.", cube=cube).item_ids[0] for euros in (900, 980))
    assert client.review.relations(cube=cube) == []
    [decided] = client.review.decide(new, old, holds=False)
    assert (decided.newer, decided.older, decided.confidence, decided.decided_by) == (new, old, 0.0, "ana")
    assert client.memories.relations(memory_id=old) == [decided]
    assert client.memories.history(old)[-1].relations == (decided,)
    [again] = client.review.reopen(new, old)
    assert client.review.relations(cube=cube) == [again]
    assert client.review.merge(new, old, expected_version=1).id == old
    assert client.memories.get(new).superseded_by == old
    assert {event.kind for event in client.events.list(cube, newest=True, item=new, limit=2)} == {
        "supersede",
        "relation",
    }
    with pytest.raises(InvalidInput, match="older"):
        client.review.decide(new, new, holds=True)


def test_an_idempotency_key_makes_a_thing_once(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    cube, key = new_id(), new_id()
    assert client.cubes.create(cube, idempotency_key=key) == client.cubes.create(cube, idempotency_key=key)
    with pytest.raises(Conflict):
        client.cubes.create(cube)
    added = [client.memories.add("Once only.", cube=cube, idempotency_key=key) for _ in range(2)]
    assert added[0].item_ids == added[1].item_ids
    assert added[1].replayed
    assert client.cubes.get(cube).items == 1


def test_cubes_are_described_shared_and_dropped(listening: Listening, opened: Open) -> None:
    ana, ben = opened(listening.url, listening.ana), opened(listening.url, listening.ben)
    cube = f"team/{new_id()} ä"
    assert ana.cubes.create(cube, time_zone="Europe/Lisbon").owner == "ana"
    assert ana.cubes.change(cube, description="ours", redact_pii=True).description == "ours"
    ana.memories.add("The code word is walnut.", cube=cube)
    with pytest.raises(NotFound):
        ben.memories.search("code word", cubes=[cube])
    assert ana.sharing.grant(cube, "ben").role == "reader"
    assert [grant.identity for grant in ana.sharing.grants(cube)] == ["ben"]
    assert len(ben.memories.search("code word", cubes=[cube])) == 1
    with pytest.raises(PermissionDenied):
        ben.memories.add("I may not.", cube=cube)
    assert cube in {found.id for found in ben.cubes.list()}
    assert ana.sharing.revoke(cube, "ben") is True
    assert ana.sharing.revoke(cube, "ben") is False
    assert cube not in {found.id for found in ben.cubes.list()}
    assert ana.cubes.drop(cube).state == "purged"
    with pytest.raises(NotFound):
        ana.cubes.get(cube)


def test_nothing_of_another_tenant_is_told(listening: Listening, opened: Open) -> None:
    ana, ben = opened(listening.url, listening.ana), opened(listening.url, listening.ben)
    item = ana.memories.add("The safe opens with nineteen.").item_ids[0]
    calls = [
        lambda: ben.memories.get(item), lambda: ben.memories.history(item), lambda: ben.memories.rollback(item, 1),
        lambda: ben.memories.relations(item), lambda: ben.review.decide(item, "x", holds=True),
        lambda: ben.memories.update(item, "x"), lambda: ben.memories.erase([item]), lambda: ben.cubes.get("ana"),
        lambda: ben.memories.list(cube="ana"), lambda: ben.memories.search("safe", cubes=["ana"]),
        lambda: ben.memories.search("safe", user="ana"), lambda: ben.sharing.grants("ana"),
        lambda: ben.events.list("ana"), lambda: ben.events.follow("ana"), lambda: ben.tasks.list(cubes=["ana"]),
        lambda: ben.keys.list("ana"), ben.users.list, lambda: ben.users.get("ana"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises((NotFound, PermissionDenied)) as told:
            call()
        assert "nineteen" not in str(told.value)
    assert ben.memories.search("safe nineteen").hits == ()
    assert ana.memories.get(item).version == 1


def test_users_groups_and_keys(listening: Listening, opened: Open) -> None:
    admin = opened(listening.url, listening.admin)
    user, group = new_id(), new_id()
    assert admin.users.create(user, name="Cleo").home == user
    assert admin.users.create(group, kind="group").kind == "group"
    admin.users.join(group, user)
    assert admin.users.members(group) == (user,)
    admin.users.leave(group, user)
    assert admin.users.members(group) == ()
    assert user in {found.id for found in admin.users.list(kind="user", limit=1_000)}
    made = admin.keys.create(user, "laptop", rights=["read"])
    assert made.secret not in repr(made)
    cleo = opened(listening.url, made.secret)
    assert (cleo.users.me().identity.id, cleo.users.me().rights) == (user, ("read",))
    with pytest.raises(PermissionDenied, match="lacks the right"):
        cleo.memories.add("I only read.")
    assert [key.hint for key in admin.keys.list(user)] == [made.key.hint]
    assert admin.keys.limit(made.key.id, {"items_per_day": 3, "bytes_per_day": None}).limits.items_per_day == 3
    assert [key.limits.items_per_day for key in admin.keys.list(user)] == [3]
    assert admin.keys.create(user, "small", limits={"tokens_per_day": 9}).key.limits.tokens_per_day == 9
    with pytest.raises(PermissionDenied):
        cleo.keys.limit(made.key.id, {})
    with pytest.raises(InvalidInput, match="items"):
        admin.keys.limit(made.key.id, {"items": 3})
    with pytest.raises(NotFound):
        admin.keys.limit("none", {})
    rotated = admin.keys.rotate(made.key.id, overlap_s=60)
    assert (rotated.key.replaced_by, rotated.key.rights) == (None, ("read",))
    assert opened(listening.url, rotated.secret).users.me().identity.id == user
    assert admin.keys.create(user, "one cube", cubes=[user]).key.cubes == (user,)
    assert admin.audit.record_reads() is admin.audit.records_reads() is True
    assert admin.audit.record_reads(enabled=False) is False
    assert admin.keys.revoke(made.key.id).revoked_at is not None
    with pytest.raises(PermissionDenied) as told:
        cleo.users.me()
    assert told.value.status == 401
    assert made.secret not in str(told.value)
    cube = new_id()
    admin.cubes.create(cube)
    admin.sharing.transfer(cube, user)
    left = admin.users.offboard(user)
    assert (left.keys, left.transferred, left.kept) == (3, (), tuple(sorted((cube, user))))
    assert admin.users.enable(user, enabled=False).disabled


def test_a_wrong_key_opens_nothing(listening: Listening, opened: Open) -> None:
    with pytest.raises(PermissionDenied) as told:
        opened(listening.url, "mst_wrong").users.me()
    assert told.value.status == 401


def test_tasks_are_listed_waited_for_and_followed(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    task = client.memories.add("I play the viola in a quartet.", mode="fine", conversation=new_id()).task
    followed = list(client.tasks.follow(task, timeout_s=60))
    assert followed[-1].ended
    assert client.tasks.wait(task, timeout_s=60) == client.tasks.get(task)
    assert task in {found.id for found in client.tasks.list(kinds=["read"], cubes="ana")}
    with pytest.raises(Conflict):
        client.tasks.cancel(task)
    for call in (client.tasks.get, client.tasks.wait, client.tasks.follow):
        with pytest.raises(NotFound):
            call(new_id())


def test_events_are_listed_and_followed(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    cube = new_id()
    client.cubes.create(cube)
    client.memories.add("One.", cube=cube)
    events = client.events.list(cube, kinds=["create", "add"])
    assert [event.kind for event in events] == ["create", "add"]
    stream = client.events.follow(cube, after=events[0].seq, kinds=["add"], timeout_s=60)
    seen = iter(stream)
    assert next(seen) == events[1]
    client.memories.add("Two.", cube=cube)
    assert next(seen).seq > events[1].seq


def test_the_blocking_client_is_shared_by_threads(listening: Listening) -> None:
    with MemOSClient(listening.ana, listening.url) as client:
        cube, failed = new_id(), []
        client.cubes.create(cube)

        def add(number: int) -> None:
            try:
                client.memories.add(f"Number {number}.", cube=cube)
            except MemosError as error:
                failed.append(error)

        threads = [threading.Thread(target=add, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert client.cubes.get(cube).items == 16


def test_many_coroutines_share_the_asynchronous_client(listening: Listening) -> None:
    async def run() -> tuple[int, list[Any]]:
        async with AsyncMemOSClient(listening.ana, listening.url) as client:
            cube = new_id()
            await client.cubes.create(cube)
            adds = [client.memories.add(f"Number {number}.", cube=cube) for number in range(24)]
            found = [client.memories.search("number", cubes=[cube]) for _ in range(24)]
            await asyncio.gather(*adds, *found)
            return (await client.cubes.get(cube)).items, await client.memories.list(cube=cube)

    items, listed = asyncio.run(run())
    assert items == len(listed) == 24


def test_what_is_repeated_with_a_key_is_declared_by_the_server(listening: Listening) -> None:
    document = httpx2.get(f"{listening.url}/api/v1/openapi.json", timeout=60).json()  # made at the first request
    keyed = {
        path for path, methods in document["paths"].items()
        if "idempotency-key" in {entry["name"].lower() for entry in methods.get("post", {}).get("parameters", [])}
    }  # fmt: skip
    assert {"/memories", "/feedback", "/cubes", "/users"} <= keyed
    assert json.dumps(sorted(keyed))


def test_exports_come_in_and_everything_is_in_the_audit(listening: Listening, opened: Open, tmp_path: Path) -> None:
    client, admin = opened(listening.url, listening.ana), opened(listening.url, listening.admin)
    file = tmp_path / "talk.json"
    file.write_text('[{"role": "user", "content": "I keep bees."}]')
    assert client.imports.preview(file).first[0].text == "I keep bees."
    done = client.imports.run(file, cube="ana")
    assert done.added + done.known == 1
    told = client.audit.list(cubes=["ana"], kinds=["add"], limit=1)
    assert (told[0].kind, told[0].cube) == ("add", "ana")
    assert client.audit.list(before=told[0].id, limit=5)[0].id != told[0].id
    assert client.audit.verify("ana").intact
    found = client.memories.preview_erasure({"conversation": "talk"}, cube="ana")
    assert client.memories.erase_matching({"conversation": "talk"}, cube="ana", expected=found.items).state == "purged"
    key = client.keys.create(None, "for its use").key
    assert client.keys.used(key.id).items == 0
    assert admin.backups.list().folder is None
    with pytest.raises(Conflict, match="BACKUP_FOLDER"):
        admin.backups.create()
