"""The life of keys and people: keys for some cubes, rotation, leaving, new owners, and reads that are recorded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.core.audit import AuditEntry
from memos.core.identities import Right
from memos.core.types import LOCAL_OWNER
from memos.errors import BackendUnavailable, Conflict, InvalidInput, NotFound, PermissionDenied
from memos.kernel.access.guard import acting_as
from tests.fakes import FixedClock, WordEmbedder


@pytest.fixture
def team(memos: MemOS) -> MemOS:
    """Return an installation with Ana, who has an agent and two cubes, and Ben, each with a memory."""
    for user in ("ana", "ben"):
        memos.users.create(user)
        memos.add(f"{user} keeps a wombat", cube=user, actor=user)
    memos.users.create("bot", kind="agent", acts_for="ana")
    memos.users.create("crew", kind="group")
    memos.cubes.create("work", actor="ana")
    memos.add("the wombat works", cube="work", actor="ana")
    return memos


# Keys for some cubes


def test_a_key_reaches_its_cubes_and_nothing_else(team: MemOS) -> None:
    other = team.keys.create("ana", "everything")
    session = team.sessions.start(team.keys.authenticate(other.secret)).session
    work = team.memories.list(cube="work", actor="ana")[0].id
    home = team.memories.list(cube="ana", actor="ana")[0].id
    made = team.keys.create("ana", "one cube", cubes=["work"], actor="ana")
    assert made.key.cubes == ("work",)
    with acting_as(team.keys.authenticate(made.secret)):
        assert [cube.id for cube in team.cubes.list(actor="ana")] == ["work"]
        assert team.get(work, actor="ana").memory == "the wombat works"
        assert team.cubes.rights("work", actor="ana") == tuple(Right)
        refused: tuple[tuple[type[Exception], Callable[[], Any]], ...] = (
            (NotFound, lambda: team.get(home, actor="ana")),
            (NotFound, lambda: team.search("wombat", cubes=["work", "ana"], actor="ana")),
            (NotFound, lambda: team.add("more", cube="ana", actor="ana")),
            (PermissionDenied, lambda: team.cubes.create("new", actor="ana")),
            (PermissionDenied, lambda: team.keys.create("ana", "more", actor="ana")),
            (PermissionDenied, lambda: team.keys.revoke(other.key.id, actor="ana")),
            (PermissionDenied, lambda: team.keys.rotate(other.key.id, actor="ana")),
        )
        for error, call in refused:
            with pytest.raises(error):
                call()
        assert [key.id for key in team.keys.list("ana", actor="ana")] == [made.key.id]
        assert team.sessions.list(actor="ana") == []
        with pytest.raises(NotFound):
            team.sessions.revoke(session.id, actor="ana")
        assert {entry.cube for entry in team.audit.list(actor="ana")} == {"work"}
        assert team.keys.revoke(made.key.id, actor="ana").revoked_at is not None


def test_an_admins_key_for_a_cube_makes_no_admin(team: MemOS) -> None:
    team.users.create("root", admin=True)
    with acting_as(team.keys.authenticate(team.keys.create("root", "one cube", cubes=["work"]).secret)):
        assert len(team.memories.list(cube="work", actor="root")) == 1
        for call in (
            lambda: team.users.list(actor="root"),
            lambda: team.users.create("mallory", actor="root"),
            lambda: team.maintenance.verify(actor="root"),
            lambda: team.audit.record_reads(actor="root"),
            lambda: team.keys.list(actor="root"),
        ):
            with pytest.raises(PermissionDenied):
                call()
        with pytest.raises(NotFound):
            team.memories.list(cube="ben", actor="root")


def test_a_key_is_for_cubes_that_its_owner_reaches(team: MemOS) -> None:
    for cubes in (["ben"], ["none"]):
        with pytest.raises(NotFound):
            team.keys.create("ana", "key", cubes=cubes)
    for wrong in ([], "work", [""], ["work"] * 101):
        with pytest.raises(InvalidInput):
            team.keys.create("ana", "key", cubes=wrong)  # type: ignore[arg-type]
    made = team.keys.create("ben", "shared", cubes=["ben"])
    team.sharing.grant("work", "ben", "editor", actor="ana")
    with acting_as(team.keys.authenticate(made.secret)), pytest.raises(NotFound):
        team.memories.list(cube="work", actor="ben")  # what came later is not in it


# Rotation


def test_both_keys_work_for_a_while_and_count_as_one(tmp_path: Path) -> None:
    clock = FixedClock()
    with MemOS.open(tmp_path / "home", embedder=WordEmbedder(), clock=clock) as memos:
        memos.users.create("ana")
        old = memos.keys.create(
            "ana",
            "laptop",
            rights=["read", "write"],
            cubes=["ana"],
            limits={"items_per_day": 1},
            expires_at=clock.now() + timedelta(days=30),
        )
        with acting_as(memos.keys.authenticate(old.secret)):
            memos.add("I keep a wombat", cube="ana", actor="ana")
        clock.advance(timedelta(days=1))
        new = memos.keys.rotate(old.key.id, overlap_s=3_600, actor="ana")
        same = ("identity", "name", "rights", "cubes", "limits")
        assert [getattr(new.key, name) for name in same] == [getattr(old.key, name) for name in same]
        assert new.key.expires_at is not None
        assert abs(new.key.expires_at - new.key.created_at - timedelta(days=30)) < timedelta(minutes=1)
        assert new.key.last_used_at is None
        for secret in (old.secret, new.secret):
            assert memos.keys.authenticate(secret).identity.id == "ana"
        assert memos.keys.get(old.key.id).replaced_by == new.key.id
        clock.advance(timedelta(hours=1))
        with pytest.raises(PermissionDenied):
            memos.keys.authenticate(old.secret)
        assert memos.keys.recognise(old.secret) is None
        caller = memos.keys.authenticate(new.secret)
        assert caller.key.counts_as == old.key.id
        for again in (old.key.id, memos.keys.revoke(new.key.id).id):
            with pytest.raises(Conflict):
                memos.keys.rotate(again)
        [entry] = memos.audit.list(kinds=["key-rotate"])
        assert entry.body["replaces"] == old.key.id  # type: ignore[index,call-overload]
        assert new.secret not in str(entry)


def test_a_key_is_rotated_once_by_whom_it_belongs_to(team: MemOS) -> None:
    made = team.keys.create("ana", "key", actor="ana")
    with pytest.raises(NotFound):
        team.keys.rotate(made.key.id, actor="ben")
    for wrong in (-1, float("nan"), float("inf"), True, "1"):
        with pytest.raises(InvalidInput, match="overlap_s"):
            team.keys.rotate(made.key.id, overlap_s=wrong)  # type: ignore[arg-type]
    with (
        acting_as(team.keys.authenticate(team.keys.create("ana", "reads", rights=["read"]).secret)),
        pytest.raises(PermissionDenied),
    ):
        team.keys.rotate(made.key.id, actor="ana")
    assert team.keys.rotate(made.key.id, overlap_s=0, actor="ana").key.name == "key"
    with pytest.raises(PermissionDenied):
        team.keys.authenticate(made.secret)
    with pytest.raises(Conflict):
        team.keys.rotate(made.key.id, actor="ana")


# Leaving, and new owners


def test_who_leaves_has_no_access_left_and_memories_stay(team: MemOS) -> None:
    secrets = [team.keys.create(who, "key").secret for who in ("ana", "ana", "bot")]
    session = team.sessions.start(team.keys.authenticate(secrets[0]))
    team.sharing.grant("ben", "ana", "editor", actor="ben")
    team.sharing.grant("work", "ben", "editor", actor="ana")
    team.users.join("crew", "ana")
    done = team.users.offboard("ana")
    assert (done.agents, done.keys, done.sessions, done.shares, done.groups) == (("bot",), 3, 1, 2, ("crew",))
    assert (done.transferred, done.kept) == ((), ("ana", "bot", "work"))
    for secret in secrets:
        with pytest.raises(PermissionDenied):
            team.keys.authenticate(secret)
    with pytest.raises(PermissionDenied):
        team.sessions.authenticate(session.secret)
    assert team.users.members("crew") == ()
    assert team.sharing.grants("ben") == team.sharing.grants("work") == ()
    with pytest.raises(NotFound):
        team.memories.list(cube="work", actor="ben")
    assert len(team.memories.list(cube="ana")) == 1
    again = team.users.offboard("ana")
    assert (again.keys, again.sessions, again.shares, again.groups) == (0, 0, 0, ())
    team.sharing.transfer("work", "ben")
    assert len(team.memories.list(cube="work", actor="ben")) == 1
    team.users.enable("ana")
    assert team.keys.list("ana")[0].revoked_at is not None


def test_cubes_of_who_leaves_get_a_new_owner(team: MemOS) -> None:
    team.sharing.grant("work", "crew", "reader", actor="ana")
    team.sharing.grant("work", "ben", "reader", actor="ana")
    team.adapters.allow("work", actor="ana")
    done = team.users.offboard("ana", transfer_to="ben")
    assert (done.transferred, done.kept) == (("ana", "bot", "work"), ())
    assert {team.cubes.get(cube, actor="ben").owner for cube in done.transferred} == {"ben"}
    assert [given.identity for given in team.sharing.grants("work", actor="ben")] == ["crew"]
    assert not team.adapters.preview("work", actor="ben").allowed
    assert team.events.list("work", newest=True, limit=1)[0].kind == "transfer"


def test_nobody_leaves_by_mistake(team: MemOS) -> None:
    team.users.create("root", admin=True)
    for error, id_, to, actor in (
        (PermissionDenied, "ana", None, "ben"),
        (PermissionDenied, "ana", None, "ana"),
        (InvalidInput, "root", None, "root"),
        (InvalidInput, "crew", None, "root"),
        (NotFound, "none", None, "root"),
        (NotFound, "ana", "none", "root"),
        (InvalidInput, "ana", "ana", "root"),
        (InvalidInput, "ana", "bot", "root"),
        (InvalidInput, "ana", "crew", "root"),
    ):
        with pytest.raises(error):
            team.users.offboard(id_, transfer_to=to, actor=actor)
    assert not team.users.get("ana").disabled
    assert not team.users.get("bot").disabled


def test_a_cube_gets_a_new_owner(team: MemOS) -> None:
    team.sharing.transfer("work", "ben", actor="ana")
    assert team.cubes.get("work", actor="ben").owner == "ben"
    with pytest.raises(NotFound):
        team.memories.list(cube="work", actor="ana")
    team.users.enable("bot", enabled=False)
    for error, cube, to in (
        (Conflict, "ben", "ana"),  # where Ben works
        (InvalidInput, "work", "crew"),
        (InvalidInput, "work", "bot"),
        (NotFound, "work", "none"),
        (NotFound, "ana", "ben"),
    ):
        with pytest.raises(error):
            team.sharing.transfer(cube, to, actor="ben")
    team.sharing.grant("work", "ana", "editor", actor="ben")
    with pytest.raises(PermissionDenied):
        team.sharing.transfer("work", "ana", actor="ana")


# Reads


def reads(memos: MemOS, actor: str = LOCAL_OWNER, **wanted: Any) -> list[tuple[str, str | None, Any]]:
    found: list[AuditEntry] = memos.audit.list(kinds=["read"], actor=actor, **wanted)
    return [(each.actor, each.subject, each.body) for each in reversed(found)]


def test_reads_are_recorded_once_a_request_while_that_is_wanted(team: MemOS) -> None:
    item = team.memories.list(cube="work", actor="ana")[0].id
    assert reads(team) == []
    assert team.audit.record_reads() is team.audit.records_reads(actor="ben") is True
    team.sharing.grant("work", "ben", "reader", actor="ana")
    made = team.keys.create("ben", "key")
    with acting_as(team.keys.authenticate(made.secret)):
        team.search("wombat", cubes=["work", "ben"], actor="ben")
        team.get(item, actor="ben")
        team.memories.history(item, actor="ben")
    key = {"key": made.key.id}
    assert reads(team) == [("ben", "work", key), ("ben", "ben", key), ("ben", "work", key | {"item": item})]
    assert "wombat" not in str(team.audit.list(kinds=["read"]))
    team.get(item)  # the local owner has the folder
    assert len(reads(team)) == 3
    # The owner of a cube sees who read it; a reader what they read themselves.
    assert [who for who, _, _ in reads(team, "ana", cubes=["work"])] == ["ben", "ben"]
    assert [subject for _, subject, _ in reads(team, "ben")] == ["work", "ben", "work"]
    assert reads(team, "ben", cubes=["work"]) == []
    team.audit.record_reads(enabled=False)
    before = len(reads(team))
    team.get(item, actor="ben")
    assert len(reads(team)) == before
    assert [each.body for each in team.audit.list(kinds=["record-reads"])] == [{"enabled": False}, {"enabled": True}]
    with pytest.raises(PermissionDenied):
        team.audit.record_reads(actor="ana")


def test_the_choice_to_record_reads_outlives_a_restart_and_what_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    with MemOS.open(tmp_path / "home", embedder=WordEmbedder()) as memos:
        memos.users.create("ana")
        memos.add("I keep a wombat", cube="ana", actor="ana")
        memos.audit.record_reads()
    with MemOS.open(tmp_path / "home", embedder=WordEmbedder()) as memos:
        memos.search("wombat", cubes=["ana"], actor="ana")
        assert [(who, cube) for who, cube, _ in reads(memos)] == [("ana", "ana")]

        def full(**_: Any) -> Any:
            raise BackendUnavailable("The disk is full.")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memos.ledger, "write", full)
            with pytest.raises(BackendUnavailable):
                memos.search("wombat", cubes=["ana"], actor="ana")
