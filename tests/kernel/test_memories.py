"""What `MemOS` does when all is well: store, find, correct, roll back, remember history, answer as of a moment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.types import Status
from memos.errors import Conflict, InvalidInput, NotFound
from memos.scheduler.rules import TierSettings
from tests.fakes import FixedClock, WordEmbedder


def texts(memos: MemOS, query: str, **options: object) -> list[str]:
    return [hit.item.memory for hit in memos.search(query, **options)]  # type: ignore[arg-type]


def test_an_added_message_is_found_at_once_with_its_exact_source(memos: MemOS) -> None:
    receipt = memos.add(
        [{"role": "user", "name": "Maya", "content": "My cello is from 1890.", "message_id": "m1"}], conversation="c"
    )
    assert receipt.indexed
    [hit] = memos.search("cello").hits
    assert hit.item.id == receipt.item_ids[0]
    [source] = hit.sources
    assert (source.passage, source.speaker, source.external_id, source.conversation) == (
        "My cello is from 1890.", "Maya", "m1", "c",
    )  # fmt: skip
    assert (source.start, source.end) == (0, len("My cello is from 1890."))


def test_a_message_is_found_through_the_window_of_the_turn_before_it(memos: MemOS) -> None:
    memos.add(
        [{"role": "user", "content": "Which vet do you mean?"}, {"role": "assistant", "content": "Perrin."}],
        conversation="c",
    )
    result = memos.search("vet", explain=True)
    votes = {hit.item.memory: {vote.arm for vote in hit.arms} for hit in result}
    assert "window_bm25" in votes["Perrin."]
    assert "turn_bm25" not in votes["Perrin."]
    assert "turn_bm25" in votes["Which vet do you mean?"]


def test_windows_do_not_reach_into_another_conversation(memos: MemOS) -> None:
    memos.add("alpha beta", conversation="one")
    memos.add("gamma", conversation="two")
    assert texts(memos, "alpha") == ["alpha beta"]


def test_pages_begin_with_a_user_and_positions_follow_the_order(memos: MemOS) -> None:
    memos.add([{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"}], conversation="c")
    memos.add([{"role": "user", "content": "q2"}, {"role": "tool", "content": "t2"}], conversation="c")
    listed = memos.memories.list()
    assert [(item.memory, item.position, item.page) for item in listed] == [
        ("q1", 0, 0), ("a1", 1, 0), ("q2", 2, 1), ("t2", 3, 1),
    ]  # fmt: skip


def test_a_second_yes_is_stored_and_collapses_in_the_hits(memos: MemOS) -> None:
    first = memos.add("yes indeed", conversation="a").item_ids[0]
    second = memos.add("yes indeed", conversation="b").item_ids[0]
    assert first != second
    [hit] = memos.search("indeed").hits
    assert {hit.item.id, *hit.duplicates} == {first, second}


def test_the_same_message_id_is_the_same_message_only_in_its_conversation(memos: MemOS) -> None:
    message = [{"role": "user", "content": "hello there", "message_id": "1"}]
    first = memos.add(message, conversation="a")
    again = memos.add(message, conversation="a")
    other = memos.add(message, conversation="b")
    assert again.item_ids == first.item_ids == again.duplicates
    assert other.item_ids != first.item_ids


def test_a_repeated_idempotency_key_returns_the_first_receipt(memos: MemOS) -> None:
    first = memos.add("once", idempotency_key="k")
    again = memos.add("once", idempotency_key="k")
    assert again.replayed
    assert again.item_ids == first.item_ids
    assert len(memos.memories.list()) == 1
    with pytest.raises(Conflict, match="'k'"):
        memos.add("something else", idempotency_key="k")


def test_cubes_do_not_see_each_other(memos: MemOS) -> None:
    memos.cubes.create("alice")
    memos.cubes.create("bob")
    item = memos.add("the secret garden", cube="alice").item_ids[0]
    assert texts(memos, "secret garden", cubes=["bob"]) == []
    assert texts(memos, "secret garden", cubes=["bob", "alice"]) == ["the secret garden"]
    with pytest.raises(NotFound):
        memos.get(item, cube="bob")
    with pytest.raises(NotFound):
        memos.update(item, "changed", cube="bob")


def test_an_update_is_a_new_version_and_the_old_one_is_found_as_of_then(memos: MemOS) -> None:
    item = memos.add("The code name is Heron.").item_ids[0]
    before = memos.clock.now()
    updated = memos.update(item, "The code name is Osprey.", expected_version=1, reason="renamed")
    assert updated.version == 2
    assert texts(memos, "code name") == ["The code name is Osprey."]
    assert texts(memos, "Heron", as_of=before) == ["The code name is Heron."]
    assert texts(memos, "Osprey") == ["The code name is Osprey."]
    assert [hit.item.version for hit in memos.search("Heron")] in ([], [2])
    with pytest.raises(Conflict, match="version 2"):
        memos.update(item, "third", expected_version=1)


def test_history_tells_who_when_why_before_and_after(memos: MemOS) -> None:
    item = memos.add("one", actor="ann").item_ids[0]
    memos.update(item, "two", actor="ben", reason="better")
    memos.delete(item, actor="cid", reason="gone")
    entries = memos.memories.history(item)
    assert [(e.version, e.actor, e.reason) for e in entries] == [
        (1, "ann", "added"),
        (2, "ben", "better"),
        (3, "cid", "gone"),
    ]
    assert entries[0].before is None
    assert entries[1].before is not None
    assert (entries[1].before.memory, entries[1].after.memory) == ("one", "two")
    assert entries[2].after.status is Status.DELETED


def test_a_deleted_item_is_gone_until_it_is_rolled_back(memos: MemOS) -> None:
    item = memos.add("fragile thing").item_ids[0]
    assert memos.delete(item) == (item,)
    assert texts(memos, "fragile") == []
    assert memos.memories.list() == []
    with pytest.raises(NotFound, match="rollback"):
        memos.get(item)
    assert memos.memories.rollback(item, 1).version == 3
    assert texts(memos, "fragile") == ["fragile thing"]


def test_deleting_takes_a_message_out_of_its_followers_windows(memos: MemOS) -> None:
    first, _ = memos.add(["zebra crossing", "plain follow-up"], conversation="c").item_ids
    assert "plain follow-up" in texts(memos, "zebra")
    memos.delete(first)
    assert texts(memos, "zebra") == [] or "plain follow-up" not in [
        hit.item.memory for hit in memos.search("zebra", explain=True) if any("bm25" in v.arm for v in hit.arms)
    ]


def test_a_correction_in_plain_words_supersedes_what_its_key_replaces(memos: MemOS) -> None:
    paris, tea = memos.add(
        [
            {"role": "user", "name": "Maya", "content": "I live in Paris.", "chat_time": "2025-01-14T08:00:00Z"},
            {"role": "user", "name": "Maya", "content": "I like green tea.", "chat_time": "2025-01-14T08:01:00Z"},
        ],
        conversation="c",
    ).item_ids
    before = memos.clock.now()
    receipt = memos.feedback("No, I moved to Lyon in May.", speaker="Maya", chat_time="2025-06-01T09:00:00Z")
    assert receipt.superseded == (paris,)
    old = memos.get(paris)
    assert (old.status, old.superseded_by) == (Status.SUPERSEDED, receipt.item_id)
    assert old.valid_to == datetime(2025, 6, 1, 9, tzinfo=UTC)
    assert memos.get(tea).status is Status.ACTIVE
    assert "I live in Paris." not in texts(memos, "Where do I live? Paris?")
    assert "I live in Paris." in texts(memos, "Paris", as_of=before)
    assert texts(memos, "moved to Lyon")[0] == "No, I moved to Lyon in May."


def test_feedback_leaves_other_peoples_statements_alone(memos: MemOS) -> None:
    wei, _ = memos.add(
        [
            {"role": "user", "name": "Wei", "content": "I live in Paris."},
            {"role": "user", "name": "Maya", "content": "I live in Nice."},
        ],
        conversation="c",
    ).item_ids
    receipt = memos.feedback("I live in Lyon now.", speaker="Maya")
    assert wei not in receipt.superseded
    assert memos.get(wei).status is Status.ACTIVE
    assert memos.feedback("I live in Brest now.").superseded == ()  # who says it is not known: two people could


def test_feedback_about_somebody_else_replaces_what_says_nothing_but_that(memos: MemOS) -> None:
    told = {
        text: memos.add({"role": "user", "content": text, "name": speaker}).item_ids[0]
        for speaker, text in [
            ("Ana", "My sister Eva lives in Oslo"),
            ("Ana", "Eva works at Acme"),
            ("Ana", "Eva lives in Oslo. She has two cats."),
            ("Ana", "Tom lives in Oslo"),
            ("Ben", "Eva lives in Turin"),
        ]
    }
    receipt = memos.feedback("no, Eva moved to Trondheim", speaker="Ana", item_ids=list(told.values()))
    assert receipt.superseded == (told["My sister Eva lives in Oslo"],)
    assert memos.feedback("Eva moved to Bari", item_ids=list(told.values())).superseded == (told["Eva lives in Turin"],)
    again = [memos.add({"role": "user", "content": "My boss lives in Rome", "name": who}).item_ids[0] for who in "AB"]
    assert memos.feedback("My boss lives in Milan", item_ids=again).superseded == ()  # whose boss is not known
    assert memos.memories.rollback(told["My sister Eva lives in Oslo"], 1).status == "active"


def test_feedback_without_a_key_only_links(memos: MemOS) -> None:
    item = memos.add("The meeting is about budgets.").item_ids[0]
    receipt = memos.feedback("It was rather dull.", item_ids=[item])
    assert receipt.related == (item,)
    assert receipt.superseded == ()
    assert memos.get(item).status is Status.ACTIVE


def test_the_reference_time_leaves_out_what_had_ended(memos: MemOS) -> None:
    item = memos.add("The office is closed for repairs.").item_ids[0]
    memos.update(item, type="long_term", valid_to="2025-03-01T00:00:00Z")
    assert texts(memos, "office closed", reference_time="2025-04-01") == []
    assert texts(memos, "office closed", reference_time="2025-02-01") == ["The office is closed for repairs."]


def test_filters_reach_tags_info_time_and_text(memos: MemOS) -> None:
    memos.add("red apple", tags=["fruit"], info={"weight": 120, "a.b": True})
    memos.add("red brick", tags=["stone"], info={"weight": 2500})
    assert texts(memos, "red", filter={"tags": {"contains": "fruit"}}) == ["red apple"]
    assert texts(memos, "red", filter={"weight": {"gt": 1000}}) == ["red brick"]
    assert texts(memos, "red", filter={"info.a.b": True}) == ["red apple"]
    assert texts(memos, "red", filter={"memory": {"like": "BRICK"}}) == ["red brick"]
    assert texts(memos, "red", filter={"not": {"or": [{"tags": "stone"}, {"tags": "fruit"}]}}) == []
    assert [item.memory for item in memos.memories.list(filter={"weight": {"lte": 120}})] == ["red apple"]


def test_a_token_budget_gives_a_dated_and_cited_context(memos: MemOS) -> None:
    memos.add([{"role": "user", "name": "Maya", "content": "I own a cello.", "chat_time": "2025-01-14T08:00:00Z"}])
    memos.add("cello " * 400)
    result = memos.search("cello", token_budget=50)
    assert result.context == "[1] 2025-01-14 Tue Maya: I own a cello."
    assert 0 < result.context_tokens <= 50
    assert len(result) == 1


def test_who_asks_in_what_order_gets_a_context_in_that_order(memos: MemOS) -> None:
    said = [
        ("2025-03-01", "Trip to Oslo, a trip by train."),
        ("2025-01-01", "Trip to Rome."),
        ("2025-02-01", "Trip to Bern."),
    ]
    for day, text in said:
        memos.add({"role": "user", "name": "Maya", "content": text, "chat_time": f"{day}T08:00:00Z"}, conversation=day)
    result = memos.search("In what order was the trip to Oslo, the trip to Rome and the trip to Bern?", token_budget=90)
    assert result.context.splitlines() == [
        "[1] 2025-01-01 Wed Maya: Trip to Rome.", "[2] 2025-02-01 Sat Maya: Trip to Bern.",
        "[3] 2025-03-01 Sat Maya: Trip to Oslo, a trip by train.",
    ]  # fmt: skip
    assert [hit.item.memory for hit in result] == ["Trip to Rome.", "Trip to Bern.", "Trip to Oslo, a trip by train."]
    assert result.context_tokens <= 90
    plain = memos.search("trip to Oslo by train", token_budget=90)
    assert plain.hits[0].item.memory.startswith("Trip to Oslo")


def test_of_one_moment_the_order_is_that_of_the_telling(memos: MemOS) -> None:
    steps = [
        "First I boiled water.",
        "Then I warmed the pot for tea.",
        "The leaves went in.",
        "Then the tea steeped.",
        "I made tea.",
    ]
    said = [{"role": "user", "content": text, "chat_time": "2025-03-01T08:00:00Z"} for text in steps]
    memos.add(said)
    result = memos.search("In what order did I make the tea?", token_budget=1_000)
    assert [hit.item.memory for hit in result] == steps


def test_naive_times_are_in_the_cubes_zone(memos: MemOS) -> None:
    memos.cubes.create("paris", time_zone="Europe/Paris")
    item = memos.add({"role": "user", "content": "noon", "chat_time": "2025-07-01T12:00:00"}, cube="paris").item_ids[0]
    assert memos.get(item).sources[0].at == datetime(2025, 7, 1, 10, tzinfo=UTC)


def test_everything_is_there_after_reopening(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        ids = memos.add(["first thing", "second thing"], conversation="c").item_ids
        memos.update(ids[0], "first thing, amended")
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        assert set(texts(memos, "thing")) == {"first thing, amended", "second thing"}
        assert memos.maintenance.verify().clean


def test_dropping_a_cube_leaves_nothing_of_it(memos: MemOS) -> None:
    memos.cubes.create("temp")
    item = memos.add("passing remark", cube="temp").item_ids[0]
    memos.cubes.drop("temp")
    assert "temp" not in [cube.id for cube in memos.cubes.list()]
    with pytest.raises(NotFound, match="erased"):
        memos.get(item)
    assert memos.maintenance.verify().clean
    memos.cubes.create("temp")
    assert texts(memos, "passing remark", cubes=["temp"]) == []


def test_another_embedder_is_refused_until_reembed(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        item = memos.add("blue whale").item_ids[0]
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(32, "smaller")) as memos:
        with pytest.raises(Conflict, match="memos data reembed"):
            memos.search("whale")
        with pytest.raises(Conflict, match="memos data reembed"):
            memos.add("more")
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        assert texts(memos, "whale") == ["blue whale"]  # nothing was harmed by trying
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(32, "smaller")) as memos:
        assert memos.maintenance.reembed() == 1
        assert [hit.item.id for hit in memos.search("whale")] == [item]
        assert memos.maintenance.verify().clean
    assert len(list((tmp_path / "vector").iterdir())) == 1


def test_a_list_goes_on_past_the_ledgers_pages(memos: MemOS) -> None:
    for part in range(2):
        memos.add([f"entry {part} {number}" for number in range(520)], conversation="long")
    listed = memos.memories.list(limit=10_000)
    assert [item.position for item in listed] == list(range(1040))  # whose sources are read 500 at a time
    assert [item.id for item in memos.memories.list(limit=10, offset=995)] == [item.id for item in listed[995:1005]]


def test_upkeep_goes_on_after_a_reembed(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos.add("blue whale")
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(32, "smaller")) as memos:
        assert not memos._worker.running
        memos.maintenance.reembed()
        assert memos._worker.running


def test_an_installation_is_readable_by_its_owner_alone(tmp_path: Path, settings: Settings) -> None:
    tmp_path.chmod(0o755)
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos.add("private")
        modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0}, modes


def test_text_conditions_judge_the_version_that_stood_then(memos: MemOS) -> None:
    item = memos.add("The code name is Heron.").item_ids[0]
    before = memos.clock.now()
    memos.update(item, "The code name is Osprey.")
    likes_heron = {"memory": {"like": "heron"}}
    assert texts(memos, "code name", filter=likes_heron) == []
    assert texts(memos, "code name", filter=likes_heron, as_of=before) == ["The code name is Heron."]


def test_a_deleted_item_is_found_as_of_before_and_not_after(memos: MemOS) -> None:
    item = memos.add("short-lived note").item_ids[0]
    before = memos.clock.now()
    memos.delete(item)
    assert texts(memos, "note", as_of=before) == ["short-lived note"]
    assert texts(memos, "note", as_of=memos.clock.now()) == []


def test_a_clock_that_stepped_back_between_two_runs_does_no_harm(tmp_path: Path, settings: Settings) -> None:
    late, early = FixedClock(datetime(2025, 1, 2, tzinfo=UTC)), FixedClock(datetime(2025, 1, 1, tzinfo=UTC))
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), clock=late) as memos:
        item = memos.add([{"role": "user", "name": "Al", "content": "I live in Paris."}]).item_ids[0]
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), clock=early) as memos:
        assert memos.feedback("I live in Rome.", speaker="Al").superseded == (item,)
        memos.delete(item)
        times = [entry.recorded_at for entry in memos.memories.history(item)]
        assert times == sorted(times)


def test_an_update_states_what_its_new_text_says(memos: MemOS) -> None:
    item = memos.add([{"role": "user", "name": "Al", "content": "I live in Paris."}]).item_ids[0]
    updated = memos.update(item, "I live in Rome.")
    assert (updated.value, updated.entities) == ("Rome", ("Rome",))
    assert memos.feedback("No, I live in Paris.", speaker="Al").superseded == (item,)


def test_other_words_do_not_make_a_replaced_memory_hold_again(memos: MemOS) -> None:
    item = memos.add([{"role": "user", "name": "Al", "content": "I live in Pariss."}]).item_ids[0]
    newer = memos.feedback("I live in Rome.", speaker="Al").item_id
    replaced = memos.get(item)
    assert (replaced.status, replaced.superseded_by) == ("superseded", newer)
    edited = memos.update(item, "I live in Paris.")
    assert (edited.value, edited.status) == ("Paris", "superseded")
    assert (edited.valid_from, edited.valid_to, edited.superseded_by) == (
        replaced.valid_from,
        replaced.valid_to,
        newer,
    )
    later = memos.update(item, "I live in Paris since May 2050.")
    assert later.valid_to == replaced.valid_to
    assert later.valid_from is not None
    assert later.valid_to is not None
    assert later.valid_from <= later.valid_to


def test_an_end_that_no_word_told_stays_and_one_that_was_told_is_read_again(memos: MemOS) -> None:
    alone = memos.add("I work at the harbor.").item_ids[0]
    ended = memos.update(alone, valid_to="2025-03-01T00:00:00Z")
    assert memos.update(alone, "I work at the harbour.").valid_to == ended.valid_to
    assert memos.update(alone, "I work at the harbour again.", valid_to=None).valid_to is None
    told = memos.add({"role": "user", "content": "I was in Rome in May 2024.", "chat_time": "2025-01-01"}).item_ids[0]
    assert memos.get(told).valid_to is not None
    june = memos.update(told, "I was in Rome in June 2024.")
    assert june.valid_to is not None
    assert june.valid_to.month in (6, 7)
    assert memos.update(told, "I was in Rome once.").valid_to is None


def test_duplicates_and_long_texts_do_not_hide_the_others(memos: MemOS) -> None:
    for text in ("likes peanuts a lot", "peanuts are bad", "Bob sells peanuts"):
        memos.add(text)
    memos.add("peanuts " * 20_000)
    for _ in range(70):
        memos.add("peanuts")
    assert len(memos.search("peanuts", top_k=10)) == 5


def test_the_far_future_is_a_moment_too(memos: MemOS) -> None:
    memos.add("still true")
    assert texts(memos, "true", as_of="2300-01-01") == ["still true"]


def test_settings_that_contradict_each_other_leave_the_folder_free(tmp_path: Path, settings: Settings) -> None:
    heat = TierSettings(policy="memoryos", promote_above=1, demote_below=5)
    with pytest.raises(InvalidInput, match="demote_below"):
        MemOS.open(tmp_path, settings=settings.model_copy(update={"heat": heat}), embedder=WordEmbedder())
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as opened:
        assert opened.maintenance.verify().clean


def test_a_relative_folder_stays_where_it_is_when_the_program_moves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with MemOS.open("memory", embedder=WordEmbedder()) as memos:
        monkeypatch.chdir("elsewhere")
        memos.add("I keep bees.")
        assert memos.search("bees").hits
    assert list((tmp_path / "elsewhere").iterdir()) == []
