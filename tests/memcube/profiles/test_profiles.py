"""`MemOS.profile` over the real engines: what is stored, shown, compared, taken back, given by hand and erased."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.core.types import DEFAULT_CUBE, Fact, Role, Span, Status
from memos.errors import Conflict, IntegrityError, InvalidInput, NotFound
from memos.memcube.profiles.extraction import TraitsAnswer, traits_of
from memos.memcube.profiles.template import standard
from memos.memcube.profiles.traits import find_traits
from memos.memcube.profiles.views import Trait
from tests.fakes import FixedClock, WordEmbedder
from tests.memcube.profiles.facts import DAY, preference, say, statement

CUBE = DEFAULT_CUBE
HOME = "life.residence"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(DAY + timedelta(days=60))


@pytest.fixture
def memos(tmp_path: Path, settings: Settings, embedder: WordEmbedder, clock: FixedClock) -> Iterator[MemOS]:
    with MemOS.open(tmp_path / "home", settings=settings, embedder=embedder, clock=clock) as opened:
        yield opened


def lives_in(memos: MemOS, place: str, speaker: str = "Anna", *, day: int = 1, **fields: Any) -> str:
    """Have somebody say where they live, and the trait read from it; return the item that stands for it."""
    said = say(memos, f"I live in {place} now.", speaker, day=day)
    facts = [statement(said, "residence", place, **fields)]
    outcome = memos.profiles.put(CUBE, find_traits([said], facts, memos.profiles.template(CUBE)))
    return (outcome.new or outcome.merged or outcome.superseded)[0]


def shown(memos: MemOS, subject: str | None = None, **asked: Any) -> dict[str, str]:
    return {trait.dimension: trait.value for trait in memos.profiles.get(CUBE, subject, **asked).traits}


def only(memos: MemOS, subject: str | None = None) -> Trait:
    [trait] = memos.profiles.get(CUBE, subject).traits
    return trait


def test_a_profile_shows_traits_by_group_with_their_evidence(memos: MemOS) -> None:
    said = say(memos, "I live in Lyon and my job is welding. I love chess!")
    facts = [statement(said, "residence", "Lyon"), statement(said, "my:job", "welding"), preference(said)]
    memos.profiles.put(CUBE, find_traits([said], facts, standard()))
    profile = memos.profiles.get(CUBE)
    assert (profile.subject, profile.template) == ("Anna", "standard")
    assert [(group.id, [trait.value for trait in group.traits]) for group in profile.groups] == [
        ("life", ["Lyon", "welding"]), ("interests", ["likes"]),
    ]  # fmt: skip
    home = profile.traits[0]
    assert (home.name, home.since, home.static) == ("Residence", said.said_at, False)
    assert [(each.item, each.passage, each.speaker) for each in home.evidence] == [(said.id, "Lyon", "Anna")]
    assert memos.get(home.item).memory == "Anna - Residence: Lyon"
    assert memos.maintenance.verify().clean


def test_a_cube_that_knows_nobody_has_an_empty_profile(memos: MemOS) -> None:
    profile = memos.profiles.get(CUBE)
    assert (profile.subject, profile.groups) == ("", ())
    assert memos.profiles.subjects(CUBE) == ()
    assert memos.profiles.render(CUBE) == ""
    assert memos.profiles.history(CUBE, HOME) == ()
    assert memos.profiles.get(CUBE, "Nobody").traits == ()


def test_subjects_of_one_cube_stay_apart(memos: MemOS) -> None:
    lives_in(memos, "Lyon", "Anna")
    lives_in(memos, "Bern", "Anna Bell")
    lives_in(memos, "Rome", "a_na")  # an underscore is no wildcard
    assert memos.profiles.subjects(CUBE) == ("Anna", "Anna Bell", "a_na")
    assert shown(memos, "anna") == {HOME: "Lyon"}
    assert shown(memos, "Anna  BELL") == {HOME: "Bern"}
    assert shown(memos, "a_na") == {HOME: "Rome"}
    with pytest.raises(InvalidInput, match="has 3"):
        memos.profiles.get(CUBE)


def test_cubes_stay_apart(memos: MemOS) -> None:
    memos.cubes.create("other")
    lives_in(memos, "Lyon")
    assert memos.profiles.get("other", "Anna").traits == ()
    with pytest.raises(NotFound):
        memos.profiles.get("missing")


def test_a_newer_value_takes_the_place_of_the_older(memos: MemOS) -> None:
    old, new = lives_in(memos, "Lyon", day=1), lives_in(memos, "Bern", day=9)
    assert shown(memos) == {HOME: "Bern"}
    before = memos.get(old)
    assert (before.status, before.valid_to, before.superseded_by) == (
        Status.SUPERSEDED, DAY.replace(day=9), new,
    )  # fmt: skip


def test_what_comes_late_is_put_where_it_belongs(memos: MemOS) -> None:
    lives_in(memos, "Bern", day=9)
    late = lives_in(memos, "Lyon", day=1)
    assert shown(memos) == {HOME: "Bern"}
    kept = memos.get(late)
    assert (kept.status, kept.valid_to) == (Status.SUPERSEDED, DAY.replace(day=9))


def test_the_same_value_again_is_more_evidence(memos: MemOS) -> None:
    first = lives_in(memos, "Lyon", day=1, confidence=0.5)
    again = lives_in(memos, "LYON", day=2, confidence=0.9)
    assert again == first
    trait = only(memos)
    assert (trait.value, trait.confidence, len(trait.evidence)) == ("Lyon", 0.9, 2)
    assert trait.since == DAY


def test_a_subject_whose_name_begins_like_a_key_is_somebody_else(memos: MemOS) -> None:
    lives_in(memos, "Lyon", "Anna")
    lives_in(memos, "Bern", "Anna|profile:x")
    assert shown(memos, "Anna") == {HOME: "Lyon"}
    assert shown(memos, "Anna|profile:x") == {HOME: "Bern"}


def test_an_archived_trait_is_shown_until_another_replaces_it(memos: MemOS) -> None:
    lives_in(memos, "Lyon", day=1)
    memos.retention.add(cube=CUBE, action="archive", types=["profile"])
    memos.retention.run(cube=CUBE)
    assert shown(memos) == {HOME: "Lyon"}
    lives_in(memos, "Bern", day=2)
    assert shown(memos) == {HOME: "Bern"}


def test_what_is_found_twice_behind_the_operators_word_waits_once(memos: MemOS, clock: FixedClock) -> None:
    memos.profiles.set_static(CUBE, HOME, "Oslo", "Anna")
    clock.advance(timedelta(days=1))
    start = (clock.now() - DAY).days
    for later in (1, 2):
        said = say(memos, "I live in Lyon now.", "Anna", day=1)
        at = DAY + timedelta(days=start + later)
        facts = [replace(statement(said, "residence", "Lyon"), said_at=at, valid_from=at)]
        memos.profiles.put(CUBE, find_traits([said], facts, memos.profiles.template(CUBE)))
    assert shown(memos) == {HOME: "Oslo"}
    assert len(memos.memories.list(filter={"type": "profile", "status": "superseded"}, cube=CUBE)) == 1
    memos.profiles.remove_static(CUBE, HOME, "Anna")
    assert shown(memos) == {HOME: "Lyon"}


def test_what_is_over_ends_and_replaces_nothing(memos: MemOS) -> None:
    lives_in(memos, "Lyon", day=1)
    lives_in(memos, "Bern", day=5, valid_to=DAY.replace(day=6))
    assert shown(memos) == {HOME: "Lyon"}
    lives_in(memos, "Lyon", day=8, valid_to=DAY.replace(day=7))
    assert shown(memos) == {}


def test_an_interest_grows_with_evidence_from_later_messages(memos: MemOS) -> None:
    def talk(*texts: str, day: int) -> None:
        said = [say(memos, text, day=day + place) for place, text in enumerate(texts)]
        memos.profiles.put(CUBE, find_traits(said, [], standard()))

    talk("A chess problem.", "Chess again.", day=1)
    before = only(memos)
    talk("More chess.", "My board game club.", day=5)
    after = only(memos)
    assert (before.value, after.item) == ("talks about it", before.item)
    assert before.confidence < after.confidence < 0.9
    assert len(after.evidence) == 4
    said = say(memos, "I hate chess.", day=9)
    memos.profiles.put(CUBE, find_traits([said], [preference(said)], standard()))
    talk("Chess on TV.", "Chess in the park.", day=12)
    assert shown(memos) == {"interests.games": "dislikes"}


def test_a_profile_as_of_a_moment_is_what_was_recorded_then(memos: MemOS, clock: FixedClock) -> None:
    start = clock.now()
    lives_in(memos, "Lyon", day=1)
    middle = clock.now()
    lives_in(memos, "Bern", day=9)
    assert shown(memos, "Anna", as_of=start) == {}
    assert shown(memos, "Anna", as_of=middle.isoformat()) == {HOME: "Lyon"}
    with pytest.raises(InvalidInput):
        memos.profiles.get(CUBE, as_of="yesterday-ish")


def test_a_diff_says_what_was_added_changed_and_ended(memos: MemOS, clock: FixedClock) -> None:
    lives_in(memos, "Lyon", day=1)
    memos.profiles.set_static(CUBE, "assistant.length", "short", "Anna")
    middle = clock.now()
    lives_in(memos, "Bern", day=9)
    memos.profiles.remove_static(CUBE, "assistant.length")
    memos.profiles.set_static(CUBE, "life.diet", "vegan", "Anna")
    diff = memos.profiles.diff(CUBE, middle)
    assert [trait.value for trait in diff.added] == ["vegan"]
    assert [(change.before.value, change.after.value) for change in diff.changed] == [("Lyon", "Bern")]
    assert [trait.dimension for trait in diff.ended] == ["assistant.length"]
    same = memos.profiles.diff(CUBE, middle, middle)
    assert (same.added, same.changed, same.ended) == ((), (), ())
    with pytest.raises(InvalidInput, match="swap"):
        memos.profiles.diff(CUBE, clock.now(), middle)
    with pytest.raises(InvalidInput, match="is required"):
        memos.profiles.diff(CUBE, None)


def test_a_rollback_brings_an_older_value_back_and_later_ones_still_replace_it(memos: MemOS) -> None:
    lives_in(memos, "Lyon", day=1)
    lives_in(memos, "Bern", day=9)
    entries = memos.profiles.history(CUBE, HOME)
    assert [(entry.number, entry.value, entry.status) for entry in entries] == [
        (1, "Lyon", "active"), (2, "Lyon", "superseded"), (3, "Bern", "active"),
    ]  # fmt: skip
    assert memos.profiles.rollback(CUBE, HOME, 1).value == "Lyon"
    assert shown(memos) == {HOME: "Lyon"}
    assert only(memos).evidence[0].passage == "Lyon"
    assert memos.profiles.history(CUBE, HOME)[:3] == entries
    assert memos.profiles.rollback(CUBE, HOME, 3).value == "Bern"
    assert shown(memos) == {HOME: "Bern"}
    lives_in(memos, "Oslo", day=12)
    assert shown(memos) == {HOME: "Oslo"}
    assert memos.maintenance.verify().clean


def test_what_comes_between_after_a_rollback_does_not_blank_the_profile(memos: MemOS) -> None:
    lives_in(memos, "Lyon", day=1)
    lives_in(memos, "Bern", day=9)
    memos.profiles.rollback(CUBE, HOME, 1)
    lives_in(memos, "Oslo", day=5)
    assert shown(memos) == {HOME: "Oslo"}
    assert memos.profiles.rollback(CUBE, HOME, 1).value == "Lyon"


def test_what_was_taken_back_can_be_rolled_back_to(memos: MemOS) -> None:
    lives_in(memos, "Lyon", day=1)
    memos.profiles.set_static(CUBE, HOME, "Bern", "Anna")
    memos.profiles.remove_static(CUBE, HOME)
    assert shown(memos) == {HOME: "Lyon"}
    [number] = [entry.number for entry in memos.profiles.history(CUBE, HOME) if entry.value == "Bern"][:1]
    assert memos.profiles.rollback(CUBE, HOME, number).static
    assert shown(memos) == {HOME: "Bern"}


def test_a_rollback_to_what_is_current_changes_nothing(memos: MemOS) -> None:
    lives_in(memos, "Lyon")
    memos.profiles.rollback(CUBE, HOME, 1)
    assert len(memos.profiles.history(CUBE, HOME)) == 1


def test_a_rollback_brings_back_what_had_ended(memos: MemOS) -> None:
    lives_in(memos, "Lyon", day=1)
    lives_in(memos, "Lyon", day=8, valid_to=DAY.replace(day=7))
    assert shown(memos) == {}
    memos.profiles.rollback(CUBE, HOME, 1)
    assert shown(memos) == {HOME: "Lyon"}


def test_a_rollback_to_no_entry_or_to_one_that_was_not_current_is_refused(memos: MemOS) -> None:
    lives_in(memos, "Lyon", day=1)
    lives_in(memos, "Bern", day=9)
    with pytest.raises(NotFound):
        memos.profiles.rollback(CUBE, HOME, 4)
    with pytest.raises(NotFound):
        memos.profiles.rollback(CUBE, "life.name", 1)
    with pytest.raises(Conflict):
        memos.profiles.rollback(CUBE, HOME, 2)
    for wrong in (0, -1, True, "1", None, 10**30):
        with pytest.raises(InvalidInput):
            memos.profiles.rollback(CUBE, HOME, wrong)  # type: ignore[arg-type]
    assert shown(memos) == {HOME: "Bern"}


def test_what_the_operator_gave_is_never_overwritten_and_has_a_source(memos: MemOS) -> None:
    lives_in(memos, "Lyon", day=1)
    given = memos.profiles.set_static(CUBE, HOME, "Bern", "Anna", actor="operator")
    assert (given.value, given.static, given.confidence) == ("Bern", True, 1.0)
    [evidence] = given.evidence
    assert (evidence.speaker, evidence.passage) == ("operator", "Anna - Residence: Bern")
    assert evidence.item is not None
    assert memos.get(evidence.item).role is Role.SYSTEM
    lives_in(memos, "Oslo", day=20)
    lives_in(memos, "Bern", day=21)
    lives_in(memos, "Bern", day=22, valid_to=DAY.replace(day=22))
    trait = only(memos)
    assert (trait.value, trait.static, len(trait.evidence)) == ("Bern", True, 1)


def test_what_was_found_meanwhile_counts_when_the_operator_takes_the_word_back(memos: MemOS) -> None:
    lives_in(memos, "Lyon", day=1)
    memos.profiles.set_static(CUBE, HOME, "Bern", "Anna")
    lives_in(memos, "Oslo", day=20)
    lives_in(memos, "Rome", day=10)
    back = memos.profiles.remove_static(CUBE, HOME)
    assert back is not None
    assert (back.value, back.static) == ("Oslo", False)
    assert shown(memos) == {HOME: "Oslo"}
    lives_in(memos, "Kyiv", day=25)
    assert shown(memos) == {HOME: "Kyiv"}
    with pytest.raises(NotFound):
        memos.profiles.remove_static(CUBE, HOME)


def test_a_trait_that_only_the_operator_gave_is_gone_when_taken_back(memos: MemOS) -> None:
    memos.profiles.set_static(CUBE, "life.diet", "vegan", "Anna")
    assert memos.profiles.remove_static(CUBE, "life.diet") is None
    assert shown(memos) == {}


def test_giving_again_changes_the_value_once(memos: MemOS) -> None:
    first = memos.profiles.set_static(CUBE, "assistant.length", "SHORT", "Anna")
    assert memos.profiles.set_static(CUBE, "assistant.length", "short", "Anna").item == first.item
    assert memos.cubes.get(CUBE).items == 2
    assert memos.profiles.set_static(CUBE, "assistant.length", "long", "Anna").value == "long"
    assert shown(memos) == {"assistant.length": "long"}


@pytest.mark.parametrize(
    ("dimension", "value", "subject"),
    [
        ("life.shoe_size", "43", "Anna"), ("", "x", "Anna"), (HOME, "", "Anna"), (HOME, "N/A", "Anna"),
        (HOME, "x" * 201, "Anna"), (HOME, "a\x1b[2J", "Anna"), (HOME, "\0", "Anna"), (HOME, "\ud800", "Anna"),
        ("assistant.length", "enormous", "Anna"), ("needs.growth", "11", "Anna"), (HOME, "Lyon", ""),
        (HOME, "Lyon", "A\0"), (HOME, 7, "Anna"), (None, "Lyon", "Anna"), (HOME, "Lyon", None),
    ],
)  # fmt: skip
def test_what_cannot_be_given_is_refused_and_nothing_is_stored(
    memos: MemOS, dimension: Any, value: Any, subject: Any
) -> None:
    with pytest.raises(InvalidInput):
        memos.profiles.set_static(CUBE, dimension, value, subject)
    assert memos.cubes.get(CUBE).items == 0


def test_a_bad_extraction_leaves_the_profile_as_it_is(memos: MemOS) -> None:
    lives_in(memos, "Lyon")
    said = say(memos, "I live somewhere else.", day=5)
    quote = [{"message": 1, "quote": "I live somewhere else"}]
    for value in ("", "N/A", "error", "I cannot say", "{}", "None"):
        for dimension in (HOME, "life.shoe_size"):
            trait = {"subject": "Anna", "dimension": dimension, "value": value, "evidence": quote}
            answer = TraitsAnswer.model_validate({"traits": [trait]})
            memos.profiles.put(CUBE, traits_of(answer, [said], standard()).traits)
    memos.profiles.put(CUBE, [])
    assert shown(memos) == {HOME: "Lyon"}


def test_what_is_no_trait_or_has_no_evidence_is_not_stored(memos: MemOS) -> None:
    said = say(memos, "I live in Lyon.")
    with pytest.raises(InvalidInput):
        memos.profiles.put(CUBE, [statement(said, "residence", "Lyon")])
    [trait] = find_traits([said], [statement(said, "residence", "Lyon")], standard())
    lost = Fact(**{name: getattr(trait, name) for name in trait.__slots__} | {"spans": (Span("nowhere", 0, 1),)})
    with pytest.raises(IntegrityError):
        memos.profiles.put(CUBE, [trait, lost])
    assert shown(memos) == {}


def test_erasing_the_evidence_erases_the_trait(memos: MemOS) -> None:
    said = say(memos, "I live in Lyon.")
    [item] = memos.profiles.put(CUBE, find_traits([said], [statement(said, "residence", "Lyon")], standard())).new
    lives_in(memos, "Bern", day=9)
    receipt = memos.erase(said.id)
    assert item in receipt.item_ids
    assert [entry.value for entry in memos.profiles.history(CUBE, HOME)] == ["Bern"]
    with pytest.raises(NotFound):
        memos.get(item)
    assert b"Lyon" not in (memos.home / "ledger.db").read_bytes()
    assert memos.maintenance.verify().clean


def test_erasing_the_operators_message_erases_what_was_given(memos: MemOS) -> None:
    given = memos.profiles.set_static(CUBE, "life.diet", "vegan", "Anna")
    memos.erase(str(given.evidence[0].item))
    assert shown(memos, "Anna") == {}


def test_a_profile_for_a_prompt_has_one_line_a_trait_and_keeps_to_its_budget(memos: MemOS) -> None:
    lives_in(memos, "Lyon", confidence=0.6)
    memos.profiles.set_static(CUBE, "assistant.length", "short", "Anna")
    assert memos.profiles.render(CUBE) == (
        "Life:\n- Residence: Lyon\nExpectations of an assistant:\n- Length: short"
    )  # fmt: skip
    assert memos.profiles.render(CUBE, max_tokens=14) == "Expectations of an assistant:\n- Length: short"
    assert memos.profiles.render(CUBE, max_tokens=1) == ""
    for wrong in (0, -5, 1.5, True):
        with pytest.raises(InvalidInput):
            memos.profiles.render(CUBE, max_tokens=wrong)  # type: ignore[arg-type]


OWN = {
    "name": "workshop",
    "groups": [
        {
            "id": "shop",
            "name": "Workshop",
            "dimensions": [
                {"id": "shop.city", "name": "City", "about": "Where.", "kind": "text", "attributes": ["residence"]},
                {"id": "shop.tools", "name": "Tools", "about": "Tools.", "kind": "interest", "words": ["chisel"]},
            ],
        }
    ],
}


def test_a_cube_may_follow_its_own_template(memos: MemOS, tmp_path: Path) -> None:
    memos.cubes.create("other" * 25)
    lives_in(memos, "Lyon")
    (tmp_path / "own.json").write_text(json.dumps(OWN), encoding="utf-8")
    assert memos.profiles.use_template(CUBE, tmp_path / "own.json").name == "workshop"
    assert memos.profiles.template("other" * 25) == standard()
    lives_in(memos, "Bern", day=9)
    profile = memos.profiles.get(CUBE)
    assert profile.template == "workshop"
    # What was known before is still shown, though its dimension has no name any more.
    assert [(group.id, group.name) for group in profile.groups] == [("shop", "Workshop"), ("life", "life")]
    with pytest.raises(InvalidInput):
        memos.profiles.set_static(CUBE, HOME, "Oslo", "Anna")
    assert memos.profiles.use_template(CUBE, None) == standard()
    assert memos.profiles.template(CUBE) == standard()


def test_a_bad_template_leaves_the_one_there_is(memos: MemOS) -> None:
    memos.profiles.use_template(CUBE, OWN)
    with pytest.raises(InvalidInput):
        memos.profiles.use_template(CUBE, {"name": "bad", "groups": []})
    assert memos.profiles.template(CUBE).name == "workshop"


def test_an_own_template_is_kept_by_a_backup_and_goes_with_its_cube(memos: MemOS, tmp_path: Path) -> None:
    memos.cubes.create("other")
    memos.profiles.use_template("other", OWN)
    memos.maintenance.backup(tmp_path / "backup")
    assert any("workshop" in line for line in _lines(tmp_path / "backup" / "meta.jsonl.gz"))
    memos.cubes.drop("other")
    memos.cubes.create("other")
    assert memos.profiles.template("other") == standard()


def _lines(path: Path) -> list[str]:

    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_profiles_survive_closing(tmp_path: Path, settings: Settings, embedder: WordEmbedder) -> None:
    with MemOS.open(tmp_path / "kept", settings=settings, embedder=embedder) as memos:
        lives_in(memos, "Lyon")
        memos.profiles.use_template(CUBE, OWN)
    with MemOS.open(tmp_path / "kept", settings=settings, embedder=embedder) as memos:
        assert shown(memos) == {HOME: "Lyon"}
        assert memos.profiles.template(CUBE).name == "workshop"
