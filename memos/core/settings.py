"""Every setting of an installation: one frozen object, built once from `MEMOS_*` and passed down."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import platformdirs
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from memos.core.lora import recipe_with
from memos.errors import InvalidInput

# The hours of each day in which long work may be done that nobody asked for. Pure.

_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_DAY, _LEAST = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From one time of the day in UTC until another, which may be on the day after."""

    start: time
    length: timedelta

    @classmethod
    def read(cls, text: str) -> TimeWindow:
        """Read `02:00-05:00`. Raises: ValueError (another form, or less than an hour)."""
        found = _HOURS.fullmatch(text)
        if found is None:
            raise ValueError("must be hours such as 02:00-05:00")
        from_hour, from_minute, to_hour, to_minute = map(int, found.groups())
        length = timedelta(hours=to_hour - from_hour, minutes=to_minute - from_minute) % _DAY
        if length < _LEAST:
            raise ValueError("must be an hour or more")
        return cls(time(from_hour, from_minute), length)

    def end(self, now: datetime) -> datetime | None:
        """Return when the night ends that it is now, None by day."""
        for start in (self._start(now), self._start(now) - _DAY):
            if start <= now < start + self.length:
                return start + self.length
        return None

    def next(self, now: datetime) -> datetime:
        """Return when the next night begins."""
        start = self._start(now)
        return start if start > now else start + _DAY

    def _start(self, now: datetime) -> datetime:
        return datetime.combine(now.astimezone(UTC).date(), self.start, UTC)


# Reads settings from a TOML file; knows of settings only the names of their fields.


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


_HOST = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?|[0-9a-f]*:[0-9a-f:.]*(%\w+)?")
Purpose = Literal["reader", "chat", "judge", "vision"]


def default_home() -> Path:
    """Return the user's data folder for hippocube, as the operating system places it.

    An installation made when the product was called memstrata stays where it is.
    """
    home, former = (Path(platformdirs.user_data_dir(name, appauthor=False)) for name in ("hippocube", "memstrata"))
    return former if former.exists() and not home.exists() else home


class EmbedSettings(BaseModel):
    """Which embedder a new cube uses and how much of the machine it may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Literal["minilm", "e5"] = Field(
        "minilm", description="Embedder: `minilm` (English) or `e5` (extra `multilingual`)"
    )
    threads: int = Field(2, ge=1, le=256, description="CPU threads one embedding call uses")


class IndexSettings(BaseModel):
    """How eagerly the indexes follow the ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wait_s: float = Field(
        5.0, ge=0, le=600, description="Longest time `add` waits for the indexes before it answers `indexed: false`"
    )
    flush_every_s: float = Field(
        20.0, gt=0, le=3600, description="Longest time an applied change stays unflushed in an index"
    )
    flush_every_rows: int = Field(2000, ge=1, description="Applied outbox rows after which the indexes are flushed")
    optimise_after: int = Field(
        5_000, ge=1000, description="Points written before graphs for fast search are built in the background"
    )
    park_after: int = Field(
        5, ge=1, description="Failures after which an outbox row is parked and reported by `verify`"
    )


def sendable(value: SecretStr | None) -> SecretStr | None:
    """Return a key as an HTTP header can carry it. Raises: ValueError."""
    key = "" if value is None else value.get_secret_value().strip()  # a key read from a file ends with a newline
    if not (key.isascii() and key.isprintable()):
        raise ValueError("has characters no HTTP header can carry; copy the key again")
    return SecretStr(key) if key else None


Key = Annotated[SecretStr | None, AfterValidator(sendable)]
"""A key as an HTTP header can carry it."""


class QdrantSettings(BaseModel):
    """A Qdrant server that holds the vector index; without a URL the embedded engine does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(None, description="Qdrant's REST URL, such as `http://127.0.0.1:6333`; default: embedded")
    api_key: Key = Field(None, description="Qdrant's API key")
    grpc_port: int | None = Field(None, ge=1, le=65535, description="Qdrant's gRPC port; set it to use gRPC")
    collection: str = Field(
        "memos", min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_]+$", description="Name the collections begin with"
    )
    timeout_s: int = Field(10, ge=1, le=600, description="Longest time one call to Qdrant may take")
    on_disk: bool = Field(False, description="Keep full vectors on Qdrant's disk and only 8-bit ones in its memory")
    shards: int = Field(1, ge=1, le=1024, description="Shards of a new collection in a Qdrant cluster")
    replicas: int = Field(1, ge=1, le=16, description="Copies of each shard in a Qdrant cluster")


class Neo4jSettings(BaseModel):
    """A Neo4j server that holds a graph index; without a URL the graph is read from the ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        None,
        description="Neo4j's Bolt URL, `neo4j+s://` for TLS, such as `bolt://127.0.0.1:7687`; "
        "default: the graph is read from the ledger",
    )
    user: str = Field("neo4j", description="Neo4j's user")
    password: SecretStr | None = Field(None, description="Neo4j's password")
    database: str = Field("neo4j", description="Neo4j's database")
    timeout_s: int = Field(10, ge=1, le=600, description="Longest time one transaction in Neo4j may take")


LOCAL_MODEL = "local:"
"""What the name of a model in this process begins with."""


def plain_url(value: str | None) -> str | None:
    """Return an endpoint's address without the slash at its end. Raises: ValueError."""
    if value is None:
        return None
    try:
        url = urlsplit(value)
        known = url.scheme in ("http", "https") and bool(_HOST.fullmatch(url.hostname or "")) and url.port != 0
    except ValueError:
        known = False
    if not known:
        raise ValueError("is not a URL such as https://models.example.org/v1")
    if "@" in url.netloc or url.query or url.fragment:
        raise ValueError("has a user, a query or a fragment; give a plain URL, and the key as API_KEY")
    return value.rstrip("/")


Url = Annotated[str | None, AfterValidator(plain_url)]
"""An endpoint's address without the slash at its end."""


class ChatSettings(BaseModel):
    """A language model behind an OpenAI-compatible endpoint, or in this process: `local:` and where it is."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    base_url: Url = Field(
        None, description="Model endpoint up to and with its version, such as `http://127.0.0.1:8080/v1`; default: none"
    )
    model: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Name the endpoint knows the model by; or `local:` and a folder or hub name (extra `local`)",
    )
    api_key: Key = Field(None, description="Key of the model endpoint")
    timeout_s: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="Longest time one attempt may take; all attempts with their waits: times retries + 1",
    )
    retries: int = Field(3, ge=0, le=20, description="Further attempts when the endpoint fails, is busy or is too slow")
    requests_per_minute: int | None = Field(None, ge=1, description="Most requests a minute of this process")
    tokens_per_minute: int | None = Field(None, ge=1, description="Most tokens a minute of this process, both ways")
    parallel: int = Field(4, ge=1, le=1024, description="Most requests at once of this process")
    max_tokens: int = Field(1024, ge=1, description="Longest answer in tokens, where a task asks for no other")
    temperature: float = Field(0.0, ge=0, le=2, description="Sampling temperature, where a task asks for no other")
    cache_bytes: int = Field(
        16_777_216, ge=0, description="Memory for answers that are given again to the same question; 0 remembers none"
    )
    prefix_cache: Literal["off", "on", "salt"] = Field(
        "off",
        description="Whether the endpoint keeps KV of what prompts begin with; `salt`: and takes a `cache_salt`",
    )

    @property
    def local(self) -> str | None:
        """Return the folder or hub name of a model in this process, None for one behind an endpoint or none."""
        if self.model is None or not self.model.startswith(LOCAL_MODEL):
            return None
        return self.model.removeprefix(LOCAL_MODEL)

    @property
    def there(self) -> bool:
        """Say whether there is a model."""
        return self.base_url is not None or bool(self.local)

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if self.base_url is not None and self.model is None:
            raise ValueError("has a BASE_URL, so it needs a MODEL too")
        if self.base_url is not None and str(self.model).startswith(LOCAL_MODEL):
            raise ValueError("has a BASE_URL and a MODEL in this process; set one of them")
        return self


ONNX_MODEL = "onnx:"
"""What the name of a reranker in this process begins with."""

JUDGE = "judge"
"""The name of a reranker that is the judge model."""


class RerankSettings(BaseModel):
    """What reads the first candidates of a search together with its question; without a model nothing does."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    model: str | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="Reranker: `onnx:` and a folder, `judge`, or with a BASE_URL a model's name there; default: none",
    )
    base_url: Url = Field(
        None, description="Endpoint with a path `/rerank`, up to that path, such as `http://127.0.0.1:8080/v1`"
    )
    api_key: Key = Field(None, description="Key of that endpoint")
    timeout_s: float = Field(
        10.0, gt=0, le=600, description="Longest time a search waits for its reranker; then it answers without"
    )
    candidates: int = Field(50, ge=2, le=50, description="Most candidates of a search that are reranked")
    weight: float = Field(
        1.0, gt=0, le=100, description="What the reranker's best gets, as a share of the best score without it"
    )

    @property
    def folder(self) -> str | None:
        """Return the folder of a reranker in this process, None for another one or none."""
        if self.base_url is not None or self.model is None or not self.model.startswith(ONNX_MODEL):
            return None
        return self.model.removeprefix(ONNX_MODEL)

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if self.model is None:
            if self.base_url is not None or self.api_key is not None:
                raise ValueError("has a BASE_URL or an API_KEY, so it needs a MODEL too")
        elif self.base_url is not None:
            if self.model.startswith(ONNX_MODEL):
                raise ValueError("has a BASE_URL and a MODEL in this process; set one of them")
        elif self.folder == "":
            raise ValueError("has a MODEL without a folder; give one, such as onnx:/models/ms-marco-MiniLM-L6-v2")
        elif self.folder is None and self.model != JUDGE:
            raise ValueError(
                "has the MODEL of an endpoint and no BASE_URL; give one, or a MODEL that is `onnx:` and a folder, or "
                "`judge`"
            )
        return self


class TaskSettings(BaseModel):
    """How background tasks are run, and what they may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: int = Field(2, ge=0, le=256, description="Threads of this process that run background tasks; 0 runs none")
    busy_share: float = Field(
        0.5, gt=0, le=1, description="Share of its time a thread spends on tasks that nobody waits for"
    )
    tokens_per_day: int | None = Field(
        None, ge=0, description="Language model tokens the tasks of one cube may spend a UTC day; default: any number"
    )
    seconds_per_day: float | None = Field(
        None, ge=0, description="Seconds of work the tasks of one cube may spend a UTC day; default: any number"
    )


class HeatSettings(BaseModel):
    """What counts as hot, and how many pages and segments the tiers hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    policy: Literal["forward_decay", "memoryos"] = Field(
        "forward_decay", description="How accesses become heat: `forward_decay` or `memoryos` (Kang et al. 2025)"
    )
    preset: Literal["paper", "pypi"] = Field(
        "pypi", description="Parameters of `memoryos`, and its defaults for what is not set here: `paper` or `pypi`"
    )
    tau_days: float | None = Field(
        None, ge=1 / 1440, le=366, description="Days in which a heat of `forward_decay` falls to 37 %; default: 20"
    )
    promote_above: float = Field(5.0, gt=0, description="Heat from which a segment is read into long-term memory")
    demote_below: float = Field(
        0.05, ge=0, description="Heat below which a segment is archived; less than PROMOTE_ABOVE"
    )
    short_capacity: int = Field(10, ge=1, description="Pages of one conversation in the short tier")
    idle_hours: float = Field(
        12,
        ge=0,
        le=8760,
        description="Hours without a new message after which a conversation's last pages move on too; 0: never",
    )
    mid_capacity: int = Field(2000, ge=1, description="Segments of one cube in the mid tier")
    similarity: float = Field(
        0.5, ge=0, le=2, description="Cosine plus shared keywords from which a page joins a segment"
    )

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> Self:
        if self.policy == "forward_decay" and self.demote_below >= self.promote_above:
            raise ValueError(
                f"has DEMOTE_BELOW {self.demote_below:g}, which is not below PROMOTE_ABOVE {self.promote_above:g}"
            )
        return self


class UpkeepSettings(BaseModel):
    """What is done from time to time without being asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verify_every_h: float = Field(
        0, ge=0, le=8760, description="Hours between two comparisons of the ledger with its indexes; 0 makes none"
    )
    reflect: bool = Field(
        False, description="Have the chat model conclude once a day from each cube's facts; each conclusion has sources"
    )
    backup_folder: Path | None = Field(None, description="Folder that periodic backups are made in; default: none")
    backup_every_h: float = Field(24, ge=0.01, le=8760, description="Hours between two periodic backups")
    backups_kept: int = Field(7, ge=1, le=10_000, description="Periodic backups that are kept; older ones are removed")


class LimitSettings(BaseModel):
    """Where input is refused instead of harming the installation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message_bytes: int = Field(1_048_576, ge=1024, description="Largest message in UTF-8 bytes")
    file_bytes: int = Field(104_857_600, ge=1024, description="Largest file that is taken, in bytes")
    messages_per_add: int = Field(1000, ge=1, description="Most messages in one `add`")
    top_k: int = Field(1000, ge=1, description="Largest `top_k`; more is refused")
    query_chars: int = Field(20_000, ge=100, description="Longest question in characters")
    min_free_bytes: int = Field(67_108_864, ge=0, description="Free disk space under which writes are refused")
    dump_bytes: int = Field(8_589_934_592, ge=1024, description="Most bytes that a dump of a cube may unpack to")


class ImageSettings(BaseModel):
    """Which images of messages are taken; sizes are read from an image's header, before a pixel is decoded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_bytes: int = Field(20_971_520, ge=1024, le=104_857_600, description="Largest image in bytes")
    max_pixels: int = Field(50_000_000, ge=1, le=80_000_000, description="Most pixels of an image, width times height")
    fetch: bool = Field(
        False, description="Fetch images that messages name by a web address; private addresses are refused even then"
    )


class ServerSettings(BaseModel):
    """How the server listens and what a request may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address the server listens on; if not loopback, put TLS in front")
    port: int = Field(8765, ge=0, le=65535, description="Port the server listens on; 0 takes a free one")
    threads: int = Field(40, ge=4, le=1024, description="Requests that are worked on at once")
    body_bytes: int = Field(209_715_200, ge=1024, description="Largest body of a request, in bytes")
    new_users: bool = Field(
        True, description="Make a user when a request with an admin's key names one that is not known yet"
    )
    fetch_files: bool = Field(
        False, description="Fetch files that requests name by a web address; private addresses are refused even then"
    )
    cors_origins: tuple[str, ...] = Field(
        (), description="Origins whose web pages may call the server, as a JSON list; default: none"
    )
    proxy_models: tuple[str, ...] = Field(
        (), description="Further models of the chat endpoint that clients of the proxy may name, as a JSON list"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level of what the server logs; `debug` may show what messages of errors say"
    )
    stop_within_s: int = Field(20, ge=0, le=3600, description="Longest time requests may take to end at a stop")


class RecallSettings(BaseModel):
    """What of the memory a prompt is given, in `memos chat` and the proxy for OpenAI's clients."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    tokens: int = Field(1500, ge=100, le=1_000_000, description="Most tokens of the memory section in a prompt")
    top_k: int = Field(12, ge=1, le=1000, description="Most memories a search gives to a prompt")
    relevance: float = Field(0.0, ge=0, le=1, description="Relevance a found memory needs to get into a prompt")
    position: Literal["system", "user"] = Field(
        "system", description="Where the memory section stands: in the `system` message or before the last `user` text"
    )


class ActivationSettings(BaseModel):
    """What of prompts is kept as attention KV, and how much memory it may take; 0 keeps none there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device_bytes: int = Field(2_147_483_648, ge=0, description="Most bytes of KV kept on a GPU")
    host_bytes: int = Field(1_073_741_824, ge=0, description="Most bytes of KV kept in main memory")
    disk_bytes: int = Field(8_589_934_592, ge=0, description="Most bytes of KV kept in files in the home folder")
    disk_form: Literal["exact", "int8"] = Field(
        "exact", description="How they are kept there; int8 takes a quarter of float32, and is near what it was, not it"
    )
    prefix_tokens: int = Field(
        1024, ge=0, le=100_000, description="Most tokens of memories that each prompt of a cube begins with; 0: none"
    )
    stable_days: float = Field(
        3.0, ge=0, le=3650, description="Days for which a hot memory has to be unchanged to stand there"
    )


_REMOVED_PARAMETRIC = {
    "facts": "an adapter learns the 64 hottest memories",
    "new_facts": "a cube is learned again by itself from 8 new memories",
    "night_minutes": "NIGHT alone says when adapters are trained by themselves",
    "vllm_folder": "`memos adapters export` hands an adapter out, to load it elsewhere",
}


class ParametricSettings(BaseModel):
    """Which memories may become part of an adapter, of which model, and when by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stable_days: float = Field(7.0, ge=0, le=3650, description="Days for which a memory has to be unchanged")
    night: str | None = Field(
        None,
        description="Hours, UTC, in which adapters are trained by themselves, such as `02:00-05:00`; default: none",
    )
    base: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Folder or hub name of the model to train on, where the chat model is behind an endpoint",
    )
    recipe: Mapping[str, bool | int | float | str] = Field(
        default_factory=dict,
        description="What of the usual recipe is different, as JSON: docs/parametric.md has its names",
    )

    @field_validator("night")
    @classmethod
    def _known_hours(cls, value: str | None) -> str | None:
        if value is not None:
            TimeWindow.read(value)
        return value

    @field_validator("recipe")
    @classmethod
    def _known_recipe(cls, value: Mapping[str, object]) -> Mapping[str, object]:
        recipe_with(value)
        return value

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, value: Any) -> Any:
        for name, instead in _REMOVED_PARAMETRIC.items():
            if isinstance(value, Mapping) and name in value:
                raise ValueError(f"{name.upper()} was removed: {instead}")
        return value


class QuotaSettings(BaseModel):
    """How much a key may use that has no limits of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_minute: int | None = Field(None, ge=0, description="Requests a key may make a minute; default: any")
    items_per_day: int | None = Field(None, ge=0, description="Memories a key may store a UTC day; default: any number")
    bytes_per_day: int | None = Field(
        None, ge=0, description="Bytes of text and files a key may store a UTC day; default: any number"
    )
    tokens_per_day: int | None = Field(
        None, ge=0, description="Tokens of the chat model a key may use a UTC day; default: any number"
    )


class Settings(BaseSettings):
    """The installation's settings; nested ones are written `MEMOS_EMBED__THREADS`."""

    model_config = SettingsConfigDict(
        env_prefix="MEMOS_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",  # of arguments; environment variables of no setting are not read
        populate_by_name=True,
        hide_input_in_errors=True,  # it may be a key, or a URL with a password in it
    )

    config: Path | None = Field(None, description="TOML file of settings; arguments and the environment go before it")
    home: Path = Field(default_factory=default_home, description="Folder of the embedded installation")
    ledger_url: SecretStr | None = Field(
        None, description="`postgresql://user:password@host/database` of the ledger; default: SQLite in the home folder"
    )
    time_zone: str = Field("UTC", description="Time zone new cubes get; naive times are read in their cube's")
    retention_days: int = Field(
        30, ge=0, le=36_500, description="Days a deleted item can still be rolled back; then it is erased"
    )
    cube_passphrase: SecretStr | None = Field(
        None, description="Passphrase of sealed cube files; without it `memos export --seal` and `memos cube load` ask"
    )
    mask_secrets: bool = Field(
        True, description="Mask keys, tokens and passwords of known formats in everything that comes in"
    )
    otlp_endpoint: str | None = Field(
        None,
        validation_alias=AliasChoices("MEMOS_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="Where traces are sent, such as `http://127.0.0.1:4318`; or OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    embed: EmbedSettings = Field(default_factory=EmbedSettings)
    index: IndexSettings = Field(default_factory=IndexSettings)
    qdrant: QdrantSettings = Field(default_factory=QdrantSettings)
    neo4j: Neo4jSettings = Field(default_factory=Neo4jSettings)
    tasks: TaskSettings = Field(default_factory=TaskSettings)
    heat: HeatSettings = Field(default_factory=HeatSettings)
    upkeep: UpkeepSettings = Field(default_factory=UpkeepSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    images: ImageSettings = Field(default_factory=ImageSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    recall: RecallSettings = Field(default_factory=RecallSettings)
    rerank: RerankSettings = Field(default_factory=RerankSettings)
    quota: QuotaSettings = Field(default_factory=QuotaSettings)
    activation: ActivationSettings = Field(default_factory=ActivationSettings)
    parametric: ParametricSettings = Field(default_factory=ParametricSettings)
    chat_model: ChatSettings = Field(default_factory=ChatSettings)
    reader_model: ChatSettings = Field(default_factory=ChatSettings)
    judge_model: ChatSettings = Field(default_factory=ChatSettings)
    vision_model: ChatSettings = Field(default_factory=ChatSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return where settings come from, what counts most first: arguments, the environment, the file."""
        return init_settings, env_settings, SettingsFile(settings_cls)

    @property
    def prefix_room(self) -> int:
        """Return how many tokens of hot and stable memories prompts may begin with; 0 if no model keeps their KV."""
        kept = self.chat_model.local is not None or self.chat_model.prefix_cache != "off"
        return self.activation.prefix_tokens if kept else 0

    @property
    def prefixed(self) -> bool:
        """Say whether prompts begin with such memories."""
        return self.prefix_room > 0

    @property
    def local_chat(self) -> ChatSettings | None:
        """Return the settings of the model in this process that chats, None when there is none."""
        return None if self.chat_model.local is None else self.chat_model

    @property
    def learning_model(self) -> ChatSettings | None:
        """Return the settings of the model that adapters are trained on, None when there is none.

        It is the one in this process that chats, else the base of the one behind an endpoint.
        """
        if self.chat_model.local is not None or self.parametric.base is None:
            return self.local_chat
        return ChatSettings(model=f"{LOCAL_MODEL}{self.parametric.base}")

    def model_for(self, purpose: Purpose) -> ChatSettings | None:
        """Return the settings of a purpose's model, None when there is none.

        A reader or judge without a URL of its own is the chat model, with the fields it names changed. What looks at
        images stands alone: an ordinary chat model cannot see.
        """
        if purpose == "vision":
            return self.vision_model if self.vision_model.there else None
        own = {"reader": self.reader_model, "chat": self.chat_model, "judge": self.judge_model}[purpose]
        if own.there:
            return own
        if not self.chat_model.there:
            return None
        return self.chat_model.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})

    @field_validator("home")
    @classmethod
    def _usable_home(cls, value: Path) -> Path:
        if "\0" in str(value):
            raise ValueError("has a NUL character")
        return value.expanduser()

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"{value!r} is not a time zone such as Europe/Paris") from error
        return value

    @field_validator("vision_model")
    @classmethod
    def _has_its_own_endpoint(cls, value: ChatSettings) -> ChatSettings:
        if value.local is not None:
            raise ValueError("is in this process, where no model sees images; give it a BASE_URL")
        if value.model_fields_set and value.base_url is None:
            raise ValueError("is set without a BASE_URL; give it one, since the chat model need not see images")
        return value

    @field_validator("chat_model", "reader_model", "judge_model")
    @classmethod
    def _has_an_endpoint(cls, value: ChatSettings, info: ValidationInfo) -> ChatSettings:
        named = value.model_fields_set and not value.there
        chat_model = info.data.get("chat_model")
        if named and (info.field_name == "chat_model" or chat_model is None or not chat_model.there):
            raise ValueError(
                "is set without a BASE_URL; give its endpoint's address, or a MODEL that is `local:` and a folder"
            )
        return value
