"""Where settings come from: the environment and a TOML file; and those of version 0.1, which are none any more."""

from __future__ import annotations

import difflib
import logging
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource, PydanticBaseSettingsSource

from memos.errors import InvalidInput

# Settings of version 0.1 that version 0.2 ignores with a warning, and what applies instead; 0.3 refuses them.

_CALLS: Final = {
    "retries": "a failed call is retried three times",
    "requests_per_minute": "calls are retried later when the endpoint is busy",
    "tokens_per_minute": "calls are retried later when the endpoint is busy",
    "temperature": "it is 0 unless a task needs another",
    "cache_bytes": "answers are cached in 16 MiB",
}
_AS_CHAT: Final = {
    **_CALLS,
    "timeout_s": "MEMOS_CHAT_MODEL__TIMEOUT_S applies to every model",
    "parallel": "MEMOS_CHAT_MODEL__PARALLEL applies to every model",
    "max_tokens": "MEMOS_CHAT_MODEL__MAX_TOKENS applies to every model",
    "prefix_cache": "only the chat model can have one",
}
_FORMER: Final[Mapping[str, Mapping[str, str]]] = {
    "": {"otlp_endpoint": "set OTEL_EXPORTER_OTLP_ENDPOINT instead"},
    "index": {
        "flush_every_s": "indexes are flushed 20 s after a change",
        "flush_every_rows": "indexes are flushed after 2,000 changes",
        "optimise_after": "graphs for fast search are built after 5,000 points",
        "park_after": "a change is parked after 5 failures",
    },
    "qdrant": {
        "grpc_port": "the server is called over REST",
        "timeout_s": "the timeout is 10 s",
        "shards": "new collections use the server's default",
        "replicas": "new collections use the server's default",
        "collection": "write a prefix other than `memos` into MEMOS_QDRANT__URL, as in "
        "http://HOST:6333?collection=PREFIX",
    },
    "neo4j": {
        "database": "the database `neo4j` is used",
        "timeout_s": "the timeout is 10 s",
        "user": "write a user other than `neo4j` into MEMOS_NEO4J__URL, as in bolt://USER@HOST:7687",
    },
    "limits": {
        "dump_bytes": "a cube file may unpack to 8 GiB",
        "message_bytes": "the limit is 1 MiB per message",
        "messages_per_add": "the limit is 1,000 messages per add",
        "top_k": "the limit is 1,000",
        "query_chars": "the limit is 20,000 characters",
    },
    "images": {
        "max_bytes": "the limit is 20 MiB per image",
        "max_pixels": "the limit is 50 million pixels per image",
        "fetch": "MEMOS_SERVER__FETCH_FILES applies to images too",
    },
    "tasks": {
        "busy_share": "a thread works at most half of the time",
        "seconds_per_day": "MEMOS_TASKS__TOKENS_PER_DAY is the only budget",
    },
    "upkeep": {
        "backup_every_h": "a periodic backup is made every day; run `memos data backup` with cron for more",
        "verify_every_h": "run `memos data verify`, for example with cron",
        "reflect": "run `memos memory reflect`, for example with cron",
    },
    "heat": {
        "policy": "heat uses forward decay; pass another policy as `Settings(heat=TierSettings(policy=…))`",
        "preset": "`memoryos` has the parameters of its package",
        "tau_days": "it is 20 days, or less in a cube that exceeds its tier",
        "demote_below": "a segment is archived below a heat of 0.05",
        "short_capacity": "the short tier has 10 exchanges of a conversation",
        "idle_hours": "the last exchanges of a conversation leave the short tier after 12 hours",
        "mid_capacity": "the mid tier has 2,000 segments of a cube",
        "similarity": "a page joins a segment at a similarity of 0.5 or more",
    },
    "server": {
        "threads": "up to 40 requests run at once",
        "body_bytes": "the limit is 200 MiB per request",
        "proxy_models": "the proxy always answers with the chat model",
        "stop_within_s": "requests get 20 s to finish when the server stops",
    },
    "recall": {
        "top_k": "it is 12; set `top_k` in the request",
        "relevance": "it is 0.03; set `min_relevance` in the request",
        "position": "memories are put into the system message",
    },
    "rerank": {
        "timeout_s": "the timeout is 10 s",
        "candidates": "50 candidates are reranked",
        "weight": "the reranker's vote has the weight of the best score",
    },
    "activation": {
        "device_bytes": "up to 2 GiB of KV are kept on a GPU",
        "disk_form": "KV is stored without compression",
        "stable_days": "a memory must be unchanged for 3 days",
    },
    "parametric": {
        "facts": "an adapter is trained on the 64 hottest memories",
        "night_minutes": "only MEMOS_PARAMETRIC__NIGHT sets when adapters are trained automatically",
        "new_facts": "8 new memories trigger a new training",
        "stable_days": 'set "stable_days" in the JSON of MEMOS_PARAMETRIC__RECIPE instead',
        "vllm_folder": "export an adapter with `memos model adapter export`",
    },
    "chat_model": _CALLS,
    "reader_model": _AS_CHAT,
    "vision_model": _AS_CHAT,
    "judge_model": dict.fromkeys((*_AS_CHAT, "base_url", "model", "api_key"), "the reader model is used instead"),
}

_FORMER_GROUP: Final = TypeAdapter(dict[str, Any], config=ConfigDict(hide_input_in_errors=True))

log = logging.getLogger("memos.settings")


def _env_name(group: str, name: str) -> str:
    return f"MEMOS_{group}__{name}".upper() if group else f"MEMOS_{name}".upper()


def without_former(
    given: Mapping[str, Any], known: Collection[str]
) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """Return settings without former ones, and those with what applies instead; `known` are names of today."""
    kept, found = dict(given), []
    for group, former in _FORMER.items():
        inside = kept if not group else kept.get(group)
        if not isinstance(inside, Mapping):
            continue
        found += [(_env_name(group, name), instead) for name, instead in former.items() if name in inside]
        left = {name: value for name, value in inside.items() if name not in former}
        if not group:
            kept = left
        elif left or group in known:
            kept[group] = left
        else:
            del kept[group]
    return kept, tuple(found)


@cache
def warn_former(name: str, instead: str) -> None:
    """Log once that a setting has no effect, and what applies instead."""
    log.warning("%s was removed and has no effect: %s", name, instead)


def _names(model: type[BaseModel], group: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _names(field.annotation, name)
        else:
            yield group, name


class EnvironmentSource(EnvSettingsSource):
    """The environment's `MEMOS_*`; what is none of them and looks like one is refused."""

    def __call__(self) -> dict[str, Any]:
        """Return what the environment says. Raises: InvalidInput (an unknown name inside a group, a mistyped one)."""
        known = {_env_name(*pair): pair for pair in _names(self.settings_cls)}
        former = {_env_name(group, name): (group, name) for group, names in _FORMER.items() for name in names}
        told = super().__call__()
        for variable, value in self.env_vars.items():
            name = variable.upper()
            if name in former:
                group, inner = former[name]
                if not group or group not in self.settings_cls.model_fields:
                    (told.setdefault(group, {}) if group else told)[inner] = value
            elif name.startswith("MEMOS_") and name not in known:
                group = name.removeprefix("MEMOS_").lower()
                if group in _FORMER:
                    told.setdefault(group, _FORMER_GROUP.validate_json(value or "{}"))
                else:
                    self._check_unknown(name, known)
        return told

    def _check_unknown(self, name: str, known: Mapping[str, Any]) -> None:
        in_group, given = "__" in name, name.removeprefix("MEMOS_")
        if given.lower() in self.settings_cls.model_fields:  # a group as JSON
            return
        # Clients and other programs have variables with this prefix too, without a group.
        others = [other.removeprefix("MEMOS_") for other in known]
        close = difflib.get_close_matches(given, others, 1, 0.6 if in_group else 0.85)
        if close or in_group:
            raise InvalidInput(name, f"is not a setting; {_hint(close, 'MEMOS_')}")


def _hint(close: list[str], prefix: str) -> str:
    return f"did you mean `{prefix}{close[0]}`?" if close else "see docs/reference/settings.md"


class SettingsFile(PydanticBaseSettingsSource):
    """The TOML file that the field `config` names, as the arguments or the environment set it; nothing without one."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return nothing: the file is read as a whole."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return what the file says. Raises: InvalidInput (no such file, no TOML, an unknown name)."""
        given = self.current_state.get("config")
        return {} if not given else read(Path(given).expanduser(), self.settings_cls)


def read(path: Path, model: type[BaseModel]) -> dict[str, Any]:
    """Return a file's settings, each of which is a field or a former one. Raises: InvalidInput."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("config", f"{path} cannot be read ({error.strerror}); give a TOML file") from error
    except ValueError as error:  # what it says may be a password
        raise InvalidInput(
            "config", f"{path} is not TOML in UTF-8; write it like `[server]` and `port = 8765`"
        ) from error
    _check(without_former(told, model.model_fields)[0], model, str(path), "")
    return told


def _check(told: dict[str, Any], model: type[BaseModel], path: str, prefix: str) -> None:
    for name, value in told.items():
        field = model.model_fields.get(name)
        if field is None or (not prefix and name == "config"):
            hint = _hint(difflib.get_close_matches(name, model.model_fields, 1), prefix)
            raise InvalidInput("config", f"{path} has the unknown setting `{prefix}{name:.60}`; {hint}")
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            if not isinstance(value, dict):
                raise InvalidInput("config", f"{path}: `{prefix}{name}` is a group; write it as [{prefix}{name}]")
            _check(value, field.annotation, path, f"{prefix}{name}.")
