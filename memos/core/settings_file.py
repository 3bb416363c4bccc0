"""Reads settings from a TOML file; knows of settings only the names of their fields."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from memos.errors import InvalidInput


class SettingsFile(PydanticBaseSettingsSource):
    """The file that the field `config` names, as the arguments or the environment set it; nothing without one."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return nothing: the file is read as a whole."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return what the file says. Raises: InvalidInput (no such file, no TOML, an unknown name)."""
        given = self.current_state.get("config")
        return {} if not given else read(Path(given).expanduser(), self.settings_cls)


def read(path: Path, model: type[BaseModel]) -> dict[str, Any]:
    """Return a file's settings, each of which is a field. Raises: InvalidInput."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("config", f"{path} cannot be read ({error.strerror}); name a TOML file") from error
    except ValueError as error:  # what it says may be a password
        raise InvalidInput(
            "config", f"{path} is no TOML in UTF-8; write it like `[server]` and `port = 8765`"
        ) from error
    _check(told, model, str(path), "")
    return told


def _check(told: dict[str, Any], model: type[BaseModel], path: str, prefix: str) -> None:
    for name, value in told.items():
        field = model.model_fields.get(name)
        if field is None or (not prefix and name == "config"):
            close = difflib.get_close_matches(name, model.model_fields, 1)
            hint = f"did you mean `{prefix}{close[0]}`?" if close else "docs/settings.md lists them"
            raise InvalidInput("config", f"{path} has the unknown setting `{prefix}{name:.60}`; {hint}")
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            if not isinstance(value, dict):
                raise InvalidInput("config", f"{path}: `{prefix}{name}` is a group; write it as [{prefix}{name}]")
            _check(value, field.annotation, path, f"{prefix}{name}.")
