"""The settings in effect, and where each comes from: a default, the environment, the file, or an argument."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from memos.core.setting_sources import EnvironmentSource, read
from memos.core.settings import Settings
from memos.core.types import Json
from memos.errors import InvalidInput

MASK = "********"
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting in effect; secrets are masked."""

    name: Annotated[str, "Its name, such as `server.port`"]
    variable: Annotated[str, "Its environment variable"]
    value: Annotated[Json, "Its value; secrets are masked"]
    default: Annotated[Json, "Its default"]
    origin: Annotated[str, "`default`, `environment`, `file` or `argument` (of a command or a program)"]
    secret: Annotated[bool, "Whether its value is masked"]
    description: Annotated[str, "What it sets"]


def effective_settings(settings: Settings) -> tuple[EffectiveSetting, ...]:
    """Return every setting with its value and origin, in the order of their definition.

    The environment and the file are read again; a setting that differs from what they say now was an argument.
    """
    sources = _sources(settings)
    found = []
    for name, field in _fields(Settings):
        default = field.get_default(call_default_factory=True)
        found.append(
            EffectiveSetting(
                name=name,
                variable=f"MEMOS_{name.replace('.', '__').upper()}",
                value=_shown(_at(settings, name)),
                default=_shown(default),
                origin=_origin(settings, name, default, sources),
                secret="SecretStr" in str(field.annotation),
                description=field.description or "",
            )
        )
    return tuple(found)


class _Sources(NamedTuple):
    """Raw settings of environment and file, and the settings parsed from them; None if they are invalid."""

    environment: Mapping[str, Any]
    file: Mapping[str, Any]
    made: Settings | None


def _sources(settings: Settings) -> _Sources:
    try:
        environment = EnvironmentSource(Settings)()
        file = {} if settings.config is None else read(Path(settings.config).expanduser(), Settings)
        return _Sources(environment, file, Settings(config=settings.config))
    except (InvalidInput, ValidationError):
        return _Sources({}, {}, None)


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{name}.")
        else:
            yield prefix + name, field


def _at(value: Any, name: str) -> Any:
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _origin(settings: Settings, name: str, default: Any, sources: _Sources) -> str:
    group, _, own = name.rpartition(".")
    holder = getattr(settings, group) if group else settings
    if own not in holder.model_fields_set or (group and group not in settings.model_fields_set):
        return "default"
    value = _at(settings, name)
    if sources.made is not None and _at(sources.made, name) == value:
        for origin, said in (("environment", sources.environment), ("file", sources.file)):
            inside = said.get(group, {}) if group else said
            if isinstance(inside, Mapping) and own in inside:
                return origin
        if value == default:  # set to what it is anyway, with others of its group
            return "default"
    return "argument"


def _shown(value: Any) -> Json:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, str):
        return _PASSWORD.sub(f"{MASK}@", value)
    return _JSON.dump_python(value, mode="json", fallback=str)
