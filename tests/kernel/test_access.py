"""Users, agents, groups, grants and keys: who may see, change and share what, and that nobody sees anybody else's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.core.identities import CubeRole, Right
from memos.errors import Conflict, InvalidInput, MemosError, NotFound, PermissionDenied
from memos.kernel.access.guard import acting_as, limit_rights
from tests.fakes import FixedClock, WordEmbedder

SECRET = "the wombat sleeps in the greenhouse"


@pytest.fixture
def two(memos: MemOS) -> MemOS:
    """Return an installation with two users, each with one memory of its own."""
    for user in ("ana", "ben"):
        memos.users.create(user)
        memos.add(f"{user} knows that {SECRET}", cube=user, actor=user)
    return memos


def test_without_identities_any_name_may_do_everything(memos: MemOS) -> None:
    item = memos.add("I live in Paris", actor="anybody").item_ids[0]
    assert memos.get(item, actor="somebody else").memory == "I live in Paris"


def test_arguments_of_wrong_types_are_refused_by_name(memos: MemOS) -> None:
    wrong: Any = "yes"
    for call, field in (
        (lambda: memos.users.create("ana", admin=wrong), "admin"),
        (lambda: memos.users.create("ana", adopt=wrong), "adopt"),
        (lambda: memos.users.create("bot", kind="agent", acts_for={}), "acts_for"),  # type: ignore[arg-type]
        (lambda: memos.users.enable("local", enabled=wrong), "enabled"),
        (lambda: memos.users.list(after=[]), "after"),  # type: ignore[arg-type]
        (lambda: memos.keys.create("local", "key", rights="read"), "rights"),
        (lambda: memos.keys.create("local", "key", expires_at=wrong), "expires_at"),
        (lambda: memos.tiers.pin("item", pinned=wrong), "pinned"),
        (lambda: memos.tiers.mark_used("item", confirmed=wrong), "confirmed"),
        (lambda: memos.tiers.analyse(everything=wrong), "everything"),
        (lambda: memos.search("Paris", explain=wrong), "explain"),
        (lambda: memos.memories.erase("item", wait=wrong), "wait"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            call()
        assert refusal.value.field == field
    assert memos.users.list() == []


def test_with_one_identity_names_that_are_none_may_do_nothing(memos: MemOS) -> None:
    item = memos.add("I live in Paris").item_ids[0]
    memos.users.create("ana")
    for call in (
        lambda: memos.add("more", actor="stranger"),
        lambda: memos.get(item, actor="stranger"),
        lambda: memos.search("Paris", actor="stranger"),
        lambda: memos.cubes.list(actor="stranger"),
        lambda: memos.cubes.create("theirs", actor="stranger"),
    ):
        with pytest.raises(PermissionDenied, match="is not a user or agent"):
            call()
    assert memos.get(item).memory == "I live in Paris"


def test_a_user_has_a_cube_of_its_own_and_sees_no_other(two: MemOS) -> None:
    assert [cube.id for cube in two.cubes.list(actor="ana")] == ["ana"]
    assert [hit.item.speaker for hit in two.search("wombat", cubes=["ana"], actor="ana")] == ["user"]
    theirs = two.memories.list(cube="ben")[0].id
    two.knowledge.create("ben-kb", actor="ben")
    file = two.documents.add(("a.md", SECRET.encode()), cube="ben-kb", actor="ben").id
    for call in (
        lambda: two.search("wombat", cubes=["ben"], actor="ana"),
        lambda: two.search("wombat", cubes=["ana", "ben"], actor="ana"),
        lambda: two.memories.list(cube="ben", actor="ana"),
        lambda: two.get(theirs, actor="ana"),
        lambda: two.memories.history(theirs, actor="ana"),
        lambda: two.delete(theirs, actor="ana"),
        lambda: two.erase(theirs, actor="ana"),
        lambda: two.update(theirs, "mine now", actor="ana"),
        lambda: two.add("mine too", cube="ben", actor="ana"),
        lambda: two.feedback("no", cube="ben", actor="ana"),
        lambda: two.cubes.get("ben", actor="ana"),
        lambda: two.cubes.drop("ben", actor="ana"),
        lambda: two.tiers.working_memory(cube="ben", actor="ana"),
        lambda: two.retention.list(cube="ben", actor="ana"),
        lambda: two.review.list(cube="ben", actor="ana"),
        lambda: two.review.relations(cube="ben", actor="ana"),
        lambda: two.review.decide(theirs, "x", holds=True, actor="ana"),
        lambda: two.memories.relations(theirs, actor="ana"),
        lambda: two.profiles.subjects("ben", actor="ana"),
        lambda: two.sharing.grants("ben", actor="ana"),
        lambda: two.documents.add(("a.md", b"mine"), cube="ben", actor="ana"),
        lambda: two.documents.list(cube="ben", actor="ana"),
        lambda: two.documents.get(file, actor="ana"),
        lambda: two.documents.wait(file, actor="ana"),
        lambda: two.documents.content(file, actor="ana"),
        lambda: two.documents.markdown(file, actor="ana"),
        lambda: two.documents.delete(file, actor="ana"),
        lambda: two.documents.erase(file, actor="ana"),
        lambda: two.knowledge.get("ben-kb", actor="ana"),
        lambda: two.knowledge.files("ben-kb", actor="ana"),
        lambda: two.images.of(theirs, actor="ana"),
        lambda: two.tools.list(cube="ben", actor="ana"),
        lambda: two.memories.extractions(theirs, actor="ana"),
        lambda: two.memories.read_finely(cube="ben", actor="ana"),
        lambda: two.events.list("ben", actor="ana"),
        lambda: next(two.events.follow("ben", after=0, actor="ana")),
        lambda: two.tasks.list(cubes=["ben"], actor="ana"),
        lambda: two.tasks.counts(cubes=["ben"], actor="ana"),
        lambda: two.statistics.overview(["ben"], actor="ana"),
    ):
        with pytest.raises(NotFound) as refused:
            call()
        assert SECRET not in str(refused.value)
    assert two.knowledge.list(actor="ana") == ()
    assert [base.id for base in two.knowledge.list(actor="ben")] == ["ben-kb"]
    assert two.get(theirs).memory == f"ben knows that {SECRET}"


def test_lists_and_counts_have_nothing_of_others(two: MemOS) -> None:
    for cube in ("ana", "ben"):
        two.tiers.analyse(cube=cube, everything=True)
    two.tasks.wait(timeout_s=60)
    theirs = two.tasks.list(cubes=["ben"])
    assert theirs
    mine = two.tasks.list(actor="ana")
    assert {task.cube for task in mine} == {"ana"}
    assert sum(two.tasks.counts(actor="ana").values()) == len(mine)
    assert [cube.cube for cube in two.statistics.overview(actor="ana").cubes] == ["ana"]
    for call in (
        lambda: two.tasks.get(theirs[0].id, actor="ana"),
        lambda: two.tasks.retry(theirs[0].id, actor="ana"),
        lambda: two.tasks.cancel(theirs[0].id, actor="ana"),
        lambda: next(two.tasks.follow(theirs[0].id, actor="ana")),
        lambda: two.tasks.wait(theirs[0].id, actor="ana", timeout_s=1),
    ):
        with pytest.raises(NotFound):
            call()
    with pytest.raises(PermissionDenied, match="only admins"):
        two.tasks.set_weight("ana", 100, actor="ana")


def test_what_is_not_there_and_what_is_not_theirs_look_the_same(two: MemOS) -> None:
    theirs = two.memories.list(cube="ben")[0].id
    messages = []
    for item in (theirs, "0192f0c1-0000-7000-8000-000000000000"):
        with pytest.raises(NotFound) as refused:
            two.get(item, actor="ana")
        messages.append(str(refused.value).replace(item, "ID"))
    for cube in ("ben", "no-such-cube"):
        with pytest.raises(NotFound) as refused:
            two.search("wombat", cubes=[cube], actor="ana")
        messages.append(str(refused.value).replace(cube, "CUBE"))
    assert messages[0] == messages[1]
    assert messages[2] == messages[3]


@pytest.mark.parametrize(("role", "allowed"), [("reader", 1), ("editor", 2), ("owner", 3)])
def test_a_role_allows_what_it_says(two: MemOS, role: str, allowed: int) -> None:
    two.sharing.grant("ana", "ben", role, actor="ana")
    theirs = two.memories.list(cube="ana", actor="ben")[0].id
    calls: list[Any] = [
        lambda: two.search("wombat", cubes=["ana", "ben"], actor="ben"),
        lambda: two.update(theirs, "changed", actor="ben"),
        lambda: two.sharing.grants("ana", actor="ben"),
    ]
    for call in calls[:allowed]:
        call()
    for call in calls[allowed:]:
        with pytest.raises(PermissionDenied, match=f"'ben' is {role} of cube 'ana'"):
            call()
    assert two.sharing.revoke("ana", "ben", actor="ana")
    with pytest.raises(NotFound):
        calls[0]()


def test_a_group_and_everyone_can_be_given_a_role(two: MemOS) -> None:
    two.users.create("team", kind="group")
    two.users.join("team", "ben")
    two.sharing.grant("ana", "team", "editor", actor="ana")
    two.add("said by ben", cube="ana", actor="ben")
    two.users.leave("team", "ben")
    with pytest.raises(NotFound):
        two.search("wombat", cubes=["ana"], actor="ben")
    two.sharing.grant("ana", "*", "reader", actor="ana")
    assert len(two.search("wombat", cubes=["ana"], actor="ben")) >= 1
    with pytest.raises(InvalidInput, match="owner cannot be given to everyone"):
        two.sharing.grant("ana", "*", "owner", actor="ana")


def test_an_agent_has_its_users_roles_and_its_own_cube(two: MemOS) -> None:
    two.users.create("ana-bot", kind="agent", acts_for="ana")
    assert {cube.id for cube in two.cubes.list(actor="ana-bot")} == {"ana", "ana-bot"}
    two.add("noted by the agent", cube="ana", actor="ana-bot")
    assert [cube.id for cube in two.cubes.list(actor="ana")] == ["ana"]
    two.users.enable("ana", enabled=False)
    with pytest.raises(PermissionDenied, match="acts for 'ana', which is disabled"):
        two.memories.list(cube="ana", actor="ana-bot")


def test_a_disabled_user_may_do_nothing_until_it_is_enabled(two: MemOS) -> None:
    two.users.enable("ana", enabled=False)
    with pytest.raises(PermissionDenied, match="is disabled"):
        two.memories.list(cube="ana", actor="ana")
    two.users.enable("ana")
    assert two.memories.list(cube="ana", actor="ana")


def test_an_admin_may_do_everything_and_others_nothing_about_the_installation(two: MemOS) -> None:
    two.users.create("root", admin=True)
    assert two.memories.list(cube="ana", actor="root")
    two.users.create("carl", actor="root")
    for call in (
        lambda: two.users.create("dora", actor="ana"),
        lambda: two.users.list(actor="ana"),
        lambda: two.users.get("ben", actor="ana"),
        lambda: two.users.enable("ben", enabled=False, actor="ana"),
        lambda: two.keys.create("ben", "stolen", actor="ana"),
        lambda: two.keys.list(actor="ana"),
        lambda: two.maintenance.verify(actor="ana"),
        lambda: two.maintenance.reindex(actor="ana"),
        lambda: two.maintenance.reembed(actor="ana"),
    ):
        with pytest.raises(PermissionDenied, match="is not an admin"):
            call()
    assert two.users.get("ana", actor="ana").id == "ana"
    assert two.maintenance.verify(cubes=["ana"], actor="ana").clean


@pytest.mark.parametrize(
    ("wanted", "error", "told"),
    [
        ({"id_": "ana"}, Conflict, "already"),
        ({"id_": "owner"}, InvalidInput, "is reserved"),
        ({"id_": "*"}, InvalidInput, "is reserved"),
        ({"id_": " "}, InvalidInput, "is empty"),
        ({"id_": "x" * 129}, InvalidInput, "the limit of 128"),
        ({"id_": "\0"}, InvalidInput, "NUL"),
        ({"id_": "bot", "kind": "robot"}, InvalidInput, "use one of user, agent, group"),
        ({"id_": "eve", "acts_for": "ana"}, InvalidInput, "applies to agents"),
        ({"id_": "bot", "kind": "agent", "acts_for": "nobody"}, NotFound, "nobody"),
        ({"id_": "team", "kind": "group", "admin": True}, InvalidInput, "not to a group"),
    ],
)
def test_an_identity_that_cannot_be_is_refused(
    two: MemOS, wanted: dict[str, Any], error: type[MemosError], told: str
) -> None:
    before = two.users.list()
    with pytest.raises(error, match=told):
        two.users.create(**wanted)
    assert two.users.list() == before


def test_a_cube_the_local_owner_made_becomes_the_users_own(memos: MemOS) -> None:
    memos.cubes.create("ana")
    memos.add("from before there were users", cube="ana")
    memos.users.create("ana")
    assert [item.memory for item in memos.memories.list(cube="ana", actor="ana")] == ["from before there were users"]


def test_nobody_keeps_a_user_from_being_made_nor_takes_over_a_cube_by_its_name(two: MemOS) -> None:
    two.cubes.create("carl", actor="ana")
    two.cubes.create("work")
    two.add("of the person at the machine", cube="work")
    two.add("also theirs")
    homes = {id_: two.users.create(id_, adopt=False).home for id_ in ("carl", "work", "default", "free")}
    assert homes["free"] == "free"
    for id_ in ("carl", "work", "default"):
        assert homes[id_] != id_
        assert [cube.id for cube in two.cubes.list(actor=id_)] == [homes[id_]]
        with pytest.raises(NotFound):
            two.memories.list(cube=id_, actor=id_)
    assert two.users.create("default-agent", kind="agent").home == "default-agent"
    assert two.cubes.get("default").owner == "owner"


def test_a_key_stands_for_its_identity_until_it_is_revoked(two: MemOS) -> None:
    made = two.keys.create("ana", "laptop", actor="ana")
    caller = two.keys.authenticate(made.secret)
    assert (caller.identity.id, caller.key.id) == ("ana", made.key.id)
    assert made.secret.startswith(made.key.hint)
    assert two.keys.list("ana", actor="ana")[0].last_used_at is not None
    assert made.secret not in repr(two.keys.list())
    assert two.keys.revoke(made.key.id, actor="ana").revoked_at is not None
    for secret in (made.secret, "", "mst_nothing", "\udc80", made.secret + "x"):
        with pytest.raises(PermissionDenied, match="unknown, expired or revoked") as refused:
            two.keys.authenticate(secret)
        assert not secret or secret not in str(refused.value)


def test_a_key_expires(tmp_path: Path) -> None:
    clock = FixedClock()
    with MemOS.open(tmp_path, embedder=WordEmbedder(), clock=clock) as memos:
        memos.users.create("ana")
        made = memos.keys.create("ana", "short", expires_at=clock.now() + timedelta(hours=1))
        assert memos.keys.authenticate(made.secret).identity.id == "ana"
        clock.advance(timedelta(hours=2))
        with pytest.raises(PermissionDenied, match="expired"):
            memos.keys.authenticate(made.secret)
        with pytest.raises(InvalidInput, match="in the future"):
            memos.keys.create("ana", "late", expires_at=clock.now())


def test_the_secret_of_a_key_is_stored_nowhere(tmp_path: Path) -> None:
    with MemOS.open(tmp_path, embedder=WordEmbedder()) as memos:
        memos.users.create("ana")
        secret = memos.keys.create("ana", "laptop").secret
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(secret.encode() in data for data in files)


def test_a_call_has_no_more_rights_than_the_key_it_came_with(two: MemOS) -> None:
    key = two.keys.create("ana", "looks only", rights=["read"]).key
    assert key.rights == (Right.READ,)
    with limit_rights(key.rights):
        assert two.memories.list(cube="ana", actor="ana")
        for call in (
            lambda: two.add("more", cube="ana", actor="ana"),
            lambda: two.sharing.grant("ana", "ben", actor="ana"),
            two.maintenance.verify,
        ):
            with pytest.raises(PermissionDenied, match="right"):
                call()
    assert two.add("more", cube="ana", actor="ana").item_ids


def test_grants_are_kept_and_told_in_the_cubes_events(tmp_path: Path) -> None:
    with MemOS.open(tmp_path, embedder=WordEmbedder()) as memos:
        for user in ("ana", "ben"):
            memos.users.create(user)
        memos.sharing.grant("ana", "ben", "editor")
        memos.sharing.grant("ana", "ben", "reader")
    with MemOS.open(tmp_path, embedder=WordEmbedder()) as memos:
        assert [(given.identity, given.role) for given in memos.sharing.grants("ana")] == [("ben", CubeRole.READER)]
        assert memos.memories.list(cube="ana", actor="ben") == []
        shared = [event.body for event in memos.events.list("ana") if event.kind == "share"]
        assert shared == [{"identity": "ben", "role": "editor"}, {"identity": "ben", "role": "reader"}]
        assert memos.maintenance.verify().clean
        memos.cubes.drop("ana")
        assert [cube.id for cube in memos.cubes.list(actor="ben")] == ["ben"]


def test_a_key_that_may_not_read_lists_nothing(two: MemOS) -> None:
    with limit_rights([Right.WRITE]):
        for call in (
            lambda: two.cubes.list(actor="ana"),
            lambda: two.keys.list("ana", actor="ana"),
            lambda: two.memories.list(cube="ana", actor="ana"),
        ):
            with pytest.raises(PermissionDenied, match="lacks the right `read`"):
                call()
        assert two.add("written all the same", cube="ana", actor="ana").item_ids


def test_a_key_makes_no_key_and_no_cube_beyond_its_own_rights(two: MemOS) -> None:
    with limit_rights([Right.READ, Right.WRITE]):
        for call in (
            lambda: two.keys.create("ana", "more", actor="ana"),
            lambda: two.keys.create("ana", "same", rights=["read"], actor="ana"),
            lambda: two.cubes.create("another", actor="ana"),
            lambda: two.knowledge.create("another", actor="ana"),
        ):
            with pytest.raises(PermissionDenied, match="lacks the right `own`"):
                call()
    with limit_rights([Right.READ, Right.OWN]):
        with pytest.raises(PermissionDenied, match="lacks the right `write`"):
            two.keys.create("ana", "more", actor="ana")
        assert two.keys.create("ana", "less", rights=["read"], actor="ana").key.rights == (Right.READ,)
    assert [cube.id for cube in two.cubes.list(actor="ana")] == ["ana"]


def test_a_call_under_a_key_acts_for_its_own_identities_alone(two: MemOS) -> None:
    two.users.create("ana-bot", kind="agent", acts_for="ana")
    caller = two.keys.authenticate(two.keys.create("ana", "laptop").secret)
    with acting_as(caller):
        assert two.search("wombat", cubes=["ana"], actor="ana").hits
        assert two.search("wombat", cubes=["ana"], actor="ana-bot").hits
        for actor in ("ben", "owner", "nobody"):
            with pytest.raises(PermissionDenied, match=f"cannot act for '{actor}'"):
                two.search("wombat", cubes=["ana"], actor=actor)
            with pytest.raises(PermissionDenied):
                two.users.get("ben", actor=actor)
        assert two.users.get("ana-bot", actor="ana").acts_for == "ana"
        with pytest.raises(PermissionDenied, match="cannot act for 'ben'"):
            two.keys.create("ben", "stolen", actor="ben")
        for other in ("ben", "nobody"):
            with pytest.raises(PermissionDenied, match="is not an admin"):
                two.users.get(other, actor="ana")
