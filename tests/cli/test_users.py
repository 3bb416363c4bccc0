"""The commands about users, keys and sharing: what they do and say, in JSON and for people."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from memos import MemOS
from memos.cli.app import app
from memos.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from tests.fakes import WordEmbedder

RUNNER = CliRunner()


class Store:
    """One folder; commands run in this process, since each would take seconds to start."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *arguments: str) -> Result:
        """Run a command for people."""
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(MemOS, "open", partial(MemOS.open, embedder=WordEmbedder()))
            return RUNNER.invoke(app, [*arguments, "--data-dir", str(self.home)], env={"COLUMNS": "200"})

    def said(self, *arguments: str) -> str:
        """Return what a command that works prints for people."""
        done = self.run(*arguments)
        assert done.exit_code == 0, done.output
        return done.output

    def told(self, *arguments: str) -> Any:
        """Return the JSON a command that works prints."""
        return json.loads(self.said(*arguments, "--json"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    home: Path = tmp_path_factory.mktemp("users") / "home"
    with MemOS.open(home, embedder=WordEmbedder()):
        pass
    return Store(home)


def test_users_groups_keys_and_roles_by_command(store: Store) -> None:
    assert store.said("user", "list").startswith("no users")
    assert store.told("user", "create", "ana", "--name", "Ana [/red] \x1b[31m")["home"] == "ana"
    assert "\x1b" not in store.said("user", "show", "ana")
    assert store.said("user", "create", "bot", "--kind", "agent", "--acts-for", "ana").startswith("created bot  agent")
    store.said("user", "create", "crew", "--kind", "group")
    assert [one["id"] for one in store.told("user", "list", "--kind", "agent")] == ["bot"]
    assert store.said("user", "join", "crew", "ana") == "ana is now in crew\n"
    assert store.told("user", "members", "crew") == ["ana"]
    assert store.said("user", "leave", "crew", "ana") == "Removed ana from crew\n"
    assert "disabled" in store.said("user", "disable", "bot")
    assert "disabled" not in store.said("user", "enable", "bot")

    assert store.said("cube", "shares", "ana") == "shared with nobody\n"
    assert store.told("cube", "share", "ana", "*")["role"] == "reader"
    assert store.said("cube", "share", "ana", "crew", "--role", "editor") == "crew is editor of ana\n"
    assert {one["identity"] for one in store.told("cube", "shares", "ana")} == {"*", "crew"}
    assert store.told("cube", "unshare", "ana", "crew")["revoked"] is True
    assert "was given no role" in store.said("cube", "unshare", "ana", "crew")

    made = store.told("user", "key", "create", "ana", "laptop", "--right", "read", "--days", "7")
    assert made["key"]["rights"] == ["read"]
    assert made["key"]["expires_at"] is not None
    with MemOS.open(store.home, embedder=WordEmbedder()) as memos:
        assert memos.keys.authenticate(made["secret"]).identity.id == "ana"
    assert {each["id"]: each["name"] for each in store.told("user", "key", "list", "ana")} == {
        made["key"]["id"]: "laptop"
    }
    listed = store.said("user", "key", "list", "ana")
    assert made["key"]["id"] in listed
    assert made["secret"] not in listed
    rotated = store.told("user", "key", "rotate", made["key"]["id"], "--hours", "2")
    assert rotated["key"]["rights"] == ["read"]
    assert store.told("user", "key", "revoke", made["key"]["id"])["revoked_at"] is not None
    with MemOS.open(store.home, embedder=WordEmbedder()) as memos, pytest.raises(PermissionDenied):
        memos.keys.authenticate(made["secret"])

    limited = store.told("user", "key", "create", "ana", "one cube", "--cube", "ana")
    assert limited["key"]["cubes"] == ["ana"]
    assert store.said("user", "audit", "--record-reads") == "reads are recorded\n"
    assert store.told("user", "audit", "--kind", "record-reads")[0]["body"] == {"enabled": True}
    store.said("user", "create", "ben")
    store.said("cube", "share", "ana", "ben")
    assert "ben (reader)" in store.said("user", "audit", "--kind", "share")
    assert store.told("user", "audit", "--kind", "key-rotate")[0]["kind"] == "key-rotate"
    store.said("user", "create", "eve")
    store.said("cube", "create", "plans")
    assert store.said("cube", "transfer", "plans", "ana") == "plans belongs to ana\n"
    left = store.said("user", "offboard", "ana", "--transfer-to", "eve")
    assert "ana, bot: disabled, 2 keys revoked" in left
    assert "plans belongs to eve" in left
    assert store.told("user", "offboard", "eve")["kept"] == ["ana", "bot", "eve", "plans"]

    assert store.run("user", "create", "ana").exit_code == Conflict.exit_code
    assert store.run("user", "create", "ghost", "--kind", "ghost").exit_code == InvalidInput.exit_code
    assert store.run("cube", "share", "ana", "nobody").exit_code == NotFound.exit_code
    assert store.run("user", "list", "--actor", "bot").exit_code == PermissionDenied.exit_code
