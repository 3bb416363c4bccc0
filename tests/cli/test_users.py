"""The commands about users, keys and sharing: what they do and say, in JSON and for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.cli.app import app
from memos.errors import Conflict, InvalidInput, MemosError, NotFound, PermissionDenied

RUNNER = CliRunner()


class Store:
    """One folder; commands run in this process, since each would take seconds to start."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def said(self, *arguments: str) -> str:
        """Return what a command that works prints for people."""
        done = RUNNER.invoke(app, [*arguments, "--data-dir", str(self.home)], env={"COLUMNS": "200"})
        if done.exception is not None:
            raise done.exception
        return done.output

    def told(self, *arguments: str) -> Any:
        """Return the JSON a command that works prints."""
        return json.loads(self.said(*arguments, "--json"))

    def fails(self, *arguments: str) -> MemosError:
        """Return the error of a command that fails, which `main` turns into a line and an exit code."""
        with pytest.raises(MemosError) as failed:
            self.said(*arguments)
        return failed.value


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    home: Path = tmp_path_factory.mktemp("users") / "home"
    with MemOS.open(home):
        pass
    return Store(home)


def test_users_groups_keys_and_roles_by_command(store: Store) -> None:
    assert store.said("users", "list").startswith("no users")
    assert store.told("users", "create", "ana", "--name", "Ana [/red] \x1b[31m")["home"] == "ana"
    assert "\x1b" not in store.said("users", "show", "ana")
    assert store.said("users", "create", "bot", "--kind", "agent", "--acts-for", "ana").startswith("created bot  agent")
    store.said("users", "create", "crew", "--kind", "group")
    assert [one["id"] for one in store.told("users", "list", "--kind", "agent")] == ["bot"]
    assert store.said("users", "join", "crew", "ana") == "ana is in crew\n"
    assert store.told("users", "members", "crew") == ["ana"]
    assert store.said("users", "leave", "crew", "ana") == "ana is not in crew\n"
    assert "disabled" in store.said("users", "disable", "bot")
    assert "disabled" not in store.said("users", "enable", "bot")

    assert store.said("share", "list", "ana") == "shared with nobody\n"
    assert store.told("share", "grant", "ana", "*")["role"] == "reader"
    assert store.said("share", "grant", "ana", "crew", "--role", "editor") == "crew is editor of ana\n"
    assert {one["identity"] for one in store.told("share", "list", "ana")} == {"*", "crew"}
    assert store.told("share", "revoke", "ana", "crew")["revoked"] is True
    assert "was given no role" in store.said("share", "revoke", "ana", "crew")

    made = store.told("keys", "create", "ana", "laptop", "--right", "read", "--days", "7")
    assert made["key"]["rights"] == ["read"]
    assert made["key"]["expires_at"] is not None
    with MemOS.open(store.home) as memos:
        assert memos.keys.authenticate(made["secret"]).identity.id == "ana"
    listed = store.said("keys", "list", "ana")
    assert "laptop" in listed
    assert made["key"]["id"] in listed
    assert made["secret"] not in listed
    assert store.told("keys", "revoke", made["key"]["id"])["revoked_at"] is not None
    with MemOS.open(store.home) as memos, pytest.raises(PermissionDenied):
        memos.keys.authenticate(made["secret"])

    assert type(store.fails("users", "create", "ana")) is Conflict
    assert type(store.fails("users", "create", "eve", "--kind", "ghost")) is InvalidInput
    assert type(store.fails("share", "grant", "ana", "nobody")) is NotFound
    assert type(store.fails("users", "list", "--actor", "bot")) is PermissionDenied
