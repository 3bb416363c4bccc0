"""A TOML file of settings: arguments before the environment before the file before defaults; unknown names refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from memos import Settings
from memos.errors import InvalidInput


def written(folder: Path, text: str) -> Path:
    path = folder / "memos.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_then_environment_then_file_then_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'time_zone = "Europe/Oslo"\nretention_days = 3\n[server]\nport = 1111\nthreads = 7\n[limits]\ntop_k = 5\n'
    monkeypatch.setenv("MEMOS_CONFIG", str(written(tmp_path, text)))
    monkeypatch.setenv("MEMOS_SERVER__PORT", "2222")
    monkeypatch.setenv("MEMOS_RETENTION_DAYS", "4")
    found = Settings(retention_days=5)
    assert (found.retention_days, found.server.port, found.server.threads) == (5, 2222, 7)
    assert (found.time_zone, found.limits.top_k, found.limits.query_chars) == ("Europe/Oslo", 5, 20_000)
    assert Settings(config=written(tmp_path, "retention_days = 9")).retention_days == 4
    monkeypatch.delenv("MEMOS_RETENTION_DAYS")
    assert Settings().retention_days == 9
    monkeypatch.delenv("MEMOS_CONFIG")
    assert Settings().retention_days == 30


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("retention_day = 3", "did you mean `retention_days`"), ("[server]\nprot = 1", "did you mean `server.port`"),
        ("[nothing]\nx = 1", "docs/settings.md"), ("server = 1", "is a group"), ("x = ", "no TOML"),
        ("password = 'hunter2hunter2", "no TOML"), ('config = "other.toml"', "unknown setting"), ("\0", "no TOML"),
    ],
)  # fmt: skip
def test_what_is_unknown_or_unreadable_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        Settings(config=written(tmp_path, text))
    assert "hunter2" not in str(refused.value)


def test_a_wrong_value_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="port"):
        Settings(config=written(tmp_path, "[server]\nport = 99999999"))
    with pytest.raises(InvalidInput, match="cannot be read"):
        Settings(config=tmp_path / "none.toml")
    (tmp_path / "memos.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="no TOML"):
        Settings(config=tmp_path / "memos.toml")


@pytest.mark.parametrize(
    ("there", "used"),
    [
        ((), "hippocube"),
        (("memstrata",), "memstrata"),
        (("hippocube",), "hippocube"),
        (("memstrata", "hippocube"), "hippocube"),
    ],
)
def test_the_default_folder_is_the_former_one_where_only_that_is_there(
    there: tuple[str, ...], used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("MEMOS_HOME", raising=False)
    for name in there:
        (tmp_path / name).mkdir()
    assert Settings().home == tmp_path / used
