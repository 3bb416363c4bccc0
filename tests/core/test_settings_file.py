"""Where settings come from, which names are refused, and which are ignored with a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memos import Settings
from memos.cli.doctor import examine
from memos.core.setting_sources import warn_former
from memos.errors import InvalidInput
from memos.kernel.doctor import State


def written(folder: Path, text: str) -> Path:
    path = folder / "memos.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_then_environment_then_file_then_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'retention_days = 3\n[server]\nport = 1111\nhost = "::1"\n[limits]\nfile_bytes = 5000\n'
    monkeypatch.setenv("MEMOS_CONFIG", str(written(tmp_path, text)))
    monkeypatch.setenv("MEMOS_SERVER__PORT", "2222")
    monkeypatch.setenv("MEMOS_RETENTION_DAYS", "4")
    found = Settings(retention_days=5)
    assert (found.retention_days, found.server.port, found.server.host) == (5, 2222, "::1")
    assert (found.limits.file_bytes, found.limits.min_free_bytes) == (5_000, 67_108_864)
    assert Settings(config=written(tmp_path, "retention_days = 9")).retention_days == 4
    monkeypatch.delenv("MEMOS_RETENTION_DAYS")
    assert Settings().retention_days == 9
    monkeypatch.delenv("MEMOS_CONFIG")
    assert Settings().retention_days == 30


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("retention_day = 3", "did you mean `retention_days`"),
        ("[server]\nprot = 1", "did you mean `server.port`"),
        ("[nothing]\nx = 1", "docs/reference/settings.md"),
        ("server = 1", "is a group"),
        ("x = ", "not TOML"),
        ("password = 'hunter2hunter2", "not TOML"),
        ('config = "other.toml"', "unknown setting"),
        ("\0", "not TOML"),
    ],
)
def test_what_is_unknown_or_unreadable_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        Settings(config=written(tmp_path, text))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("MEMOS_EMBDE__MODEL", "did you mean `MEMOS_EMBED__MODEL`"),
        ("MEMOS_SERVER__PROT", "did you mean `MEMOS_SERVER__PORT`"),
        ("MEMOS_EMBED_MODEL", "did you mean `MEMOS_EMBED__MODEL`"),
        ("MEMOS_LEDGR_URL", "did you mean `MEMOS_LEDGER_URL`"),
        ("memos_server__hots", "did you mean `MEMOS_SERVER__HOST`"),
        ("MEMOS_X__Y", "see docs/reference/settings.md"),
    ],
)
def test_a_mistyped_variable_is_refused_with_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(InvalidInput, match=f"{name.upper()}: is not a setting; {told}"):
        Settings()


def test_variables_of_clients_and_other_programs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MEMOS_BASE_URL", "MEMOS_API_KEY", "MEMOS_SOMETHING", "OTHER__NAME"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MEMOS_EMBED", '{"threads": 3}')
    assert Settings().embed.threads == 3


FORMER = {
    "MEMOS_OTLP_ENDPOINT": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "MEMOS_HEAT__TAU_DAYS": "20 days",
    "MEMOS_IMAGES__FETCH": "MEMOS_SERVER__FETCH_FILES",
    "MEMOS_JUDGE_MODEL__MODEL": "the reader model",
    "MEMOS_READER_MODEL__TIMEOUT_S": "MEMOS_CHAT_MODEL__TIMEOUT_S",
}


def test_a_former_group_as_json_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOS_IMAGES", '{"fetch": true}')
    assert [name for name, _ in Settings().former] == ["MEMOS_IMAGES__FETCH"]


@pytest.mark.parametrize("given", ["environment", "file", "arguments"])
def test_a_former_setting_is_ignored_and_named_once_with_what_applies_instead(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_former.cache_clear()
    arguments: dict[str, Any] = {}
    if given == "environment":
        for name in FORMER:
            monkeypatch.setenv(name, "1")
    elif given == "file":
        groups = (name.removeprefix("MEMOS_").lower().partition("__") for name in FORMER)
        text = "\n".join(f"[{group}]\n{name} = 1" if name else f"{group} = 1" for group, _, name in groups)
        arguments = {"config": written(tmp_path, text)}
        arguments["config"].chmod(0o600)
    else:
        for name in FORMER:
            group, _, inner = name.removeprefix("MEMOS_").lower().partition("__")
            arguments[group] = {inner: 1} if inner else 1
    for _ in range(2):
        settings = Settings(**arguments)
    assert dict(settings.former).keys() == FORMER.keys()
    warned = [record.getMessage() for record in caplog.records if record.name == "memos.settings"]
    assert len(warned) == len(FORMER)
    for name, instead in FORMER.items():
        [message] = [each for each in warned if each.startswith(f"{name} was removed")]
        assert instead in message
    found = [finding for finding in examine(settings) if finding.what == "settings"]
    assert [finding.state for finding in found].count(State.DOUBTFUL) == len(FORMER)


def test_a_wrong_value_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="port"):
        Settings(config=written(tmp_path, "[server]\nport = 99999999"))
    with pytest.raises(InvalidInput, match="cannot be read"):
        Settings(config=tmp_path / "none.toml")
    (tmp_path / "memos.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="not TOML"):
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
