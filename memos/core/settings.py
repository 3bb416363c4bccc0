"""Every setting of an installation: one frozen object, built once from `MEMOS_*` and passed down."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from memos.core.home import default_home
from memos.core.lora import STABLE_DAYS, recipe_with
from memos.core.setting_sources import EnvironmentSource, SettingsFile, warn_former, without_former
from memos.core.time_windows import TimeWindow

_HOST = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?|[0-9a-f]*:[0-9a-f:.]*(%\w+)?")
Purpose = Literal["reader", "chat", "vision"]


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


OLLAMA_URL = "http://127.0.0.1:11434/v1"
"""Where Ollama is unless it is said."""

_ENDPOINT = re.compile(r"(openai|ollama):([^\s@]{1,200}(?:@(?!https?:)[^\s@]{1,100})*)(?:@(https?://\S+))?")


def _endpoint(value: str) -> str:
    """Check the name of a model behind an endpoint. Raises: ValueError."""
    found = _ENDPOINT.fullmatch(value)
    if found is None or (found[1] == "openai" and found[3] is None):
        raise ValueError("must be `minilm`, `e5`, `openai:MODEL@URL` or `ollama:MODEL`")
    plain_url(found[3])
    return value


class EmbedSettings(_Group):
    """The embedder of new cubes, and its share of the machine."""

    model: Literal["minilm", "e5"] | Annotated[str, AfterValidator(_endpoint)] = Field(
        "minilm",
        description="Embedder: `minilm` (English), `e5` (extra `multilingual`), `ollama:MODEL`, or "
        "`openai:MODEL@URL` behind an endpoint with a path `/embeddings`, such as "
        "`openai:bge-m3@http://127.0.0.1:8080/v1`",
    )
    threads: int = Field(2, ge=1, le=256, description="CPU threads per embedding call")

    @property
    def endpoint(self) -> tuple[str, str] | None:
        """Return the model and the address of an embedder behind an endpoint, None for one in this process."""
        found = _ENDPOINT.fullmatch(self.model)
        if found is None:
            return None
        url = (found[3] or OLLAMA_URL).rstrip("/")
        if found[1] == "ollama" and not urlsplit(url).path:
            url += "/v1"
        return found[2], url


class IndexSettings(_Group):
    """Where the vector index is, and how long a change waits for the indexes."""

    vectors: Literal["qdrant", "pgvector"] = Field(
        "qdrant",
        description="Vector index: `qdrant`, embedded or at MEMOS_QDRANT__URL, or `pgvector`, in the PostgreSQL of "
        "MEMOS_LEDGER_URL",
    )

    wait_s: float = Field(
        5.0, ge=0, le=600, description="Maximum time `add` waits for the indexes before it returns `indexed: false`"
    )


def sendable(value: SecretStr | None) -> SecretStr | None:
    """Return a key as an HTTP header can carry it. Raises: ValueError."""
    key = "" if value is None else value.get_secret_value().strip()  # a key read from a file ends with a newline
    if not (key.isascii() and key.isprintable()):
        raise ValueError("contains characters that are not allowed in an HTTP header; copy the key again")
    return SecretStr(key) if key else None


Key = Annotated[SecretStr | None, AfterValidator(sendable)]
"""A key as an HTTP header can carry it."""


class QdrantSettings(_Group):
    """A Qdrant server that holds the vector index; without a URL the embedded engine does."""

    url: str | None = Field(
        None,
        description="Qdrant's REST URL, such as `http://127.0.0.1:6333`; `?collection=PREFIX` sets the prefix of its "
        "collections, which is `memos`; default: embedded",
    )
    api_key: Key = Field(None, description="Qdrant's API key")
    on_disk: bool = Field(False, description="Keep full vectors on Qdrant's disk, and only 8-bit vectors in its memory")

    @field_validator("url")
    @classmethod
    def _known_prefix(cls, value: str | None) -> str | None:
        query = (value or "").partition("?")[2]
        if query and not _COLLECTION.fullmatch(query):
            raise ValueError(
                "may end in `?collection=` and a prefix of up to 64 letters, digits and `_`, and in nothing else"
            )
        return value

    @property
    def address(self) -> str | None:
        """Return the server's URL without the prefix of the collections."""
        return None if self.url is None else self.url.partition("?")[0]

    @property
    def collection(self) -> str:
        """Return the prefix of the names of the collections."""
        found = _COLLECTION.fullmatch((self.url or "").partition("?")[2])
        return found[1] if found else "memos"


_COLLECTION = re.compile(r"collection=([A-Za-z0-9_]{1,64})")


class Neo4jSettings(_Group):
    """A Neo4j server that holds a graph index; without a URL the graph is read from the ledger."""

    url: str | None = Field(
        None,
        description="Neo4j's Bolt URL, `neo4j+s://` for TLS, such as `bolt://127.0.0.1:7687`; "
        "default: the graph is read from the ledger",
    )
    password: SecretStr | None = Field(None, description="Password of Neo4j's user, `neo4j` or the one in the URL")


LOCAL_MODEL = "local:"
"""Prefix of the name of a model in this process."""


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
        raise ValueError("must be a URL such as https://models.example.org/v1")
    if "@" in url.netloc or url.query or url.fragment:
        raise ValueError("contains a user, a query or a fragment; give a plain URL, and the key as API_KEY")
    return value.rstrip("/")


Url = Annotated[str | None, AfterValidator(plain_url)]
"""An endpoint's address without the slash at its end."""


class ModelSettings(_Group):
    """Where a language model is: behind an OpenAI-compatible endpoint, or in this process: `local:` and a folder."""

    model_config = ConfigDict(hide_input_in_errors=True)

    base_url: Url = Field(
        None, description="Model endpoint including its version, such as `http://127.0.0.1:8080/v1`; default: none"
    )
    model: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Model name at the endpoint; or `local:` and a folder or hub name (extra `local`)",
    )
    api_key: Key = Field(None, description="Key of the model endpoint")

    @property
    def local(self) -> str | None:
        """Return the folder or hub name of a model in this process, None for one behind an endpoint or none."""
        if self.model is None or not self.model.startswith(LOCAL_MODEL):
            return None
        return self.model.removeprefix(LOCAL_MODEL)

    @property
    def there(self) -> bool:
        """Return True if there is a model."""
        return self.base_url is not None or bool(self.local)

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if self.base_url is not None and self.model is None:
            raise ValueError("has a BASE_URL but no MODEL; set MODEL")
        if self.base_url is not None and str(self.model).startswith(LOCAL_MODEL):
            raise ValueError("has both a BASE_URL and a MODEL in this process; set only one of them")
        return self


class ChatSettings(ModelSettings):
    """The chat model, and how every language model is called."""

    timeout_s: float = Field(
        60.0, gt=0, le=3600, description="Timeout of one attempt, for every model; there are four attempts"
    )
    parallel: int = Field(4, ge=1, le=1024, description="Maximum concurrent requests of this process to one model")
    max_tokens: int = Field(1024, ge=1, description="Default maximum of tokens in an answer")
    prefix_cache: Literal["off", "on", "salt"] = Field(
        "off", description="Whether the endpoint caches KV of prompt prefixes; `salt`: it also takes a `cache_salt`"
    )


ONNX_MODEL = "onnx:"
"""Prefix of the name of a reranker in this process."""

JUDGE = "judge"
"""The name of a reranker that is the reader model."""


class RerankSettings(_Group):
    """The model that reranks the first candidates of a search; without one, nothing is reranked."""

    model_config = ConfigDict(hide_input_in_errors=True, allow_inf_nan=False)

    model: str | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="Reranker: `onnx:` and a folder, `judge`, or with a BASE_URL a model's name there; default: none",
    )
    base_url: Url = Field(
        None, description="Endpoint with a path `/rerank`, without that path, such as `http://127.0.0.1:8080/v1`"
    )
    api_key: Key = Field(None, description="Key of that endpoint")

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
                raise ValueError("has a BASE_URL or an API_KEY but no MODEL; set MODEL")
        elif self.base_url is not None:
            if self.model.startswith(ONNX_MODEL):
                raise ValueError("has both a BASE_URL and a MODEL in this process; set only one of them")
        elif self.folder == "":
            raise ValueError("has a MODEL without a folder; give a folder, such as onnx:/models/ms-marco-MiniLM-L6-v2")
        elif self.folder is None and self.model != JUDGE:
            raise ValueError(
                "has the MODEL of an endpoint but no BASE_URL; set BASE_URL, or set MODEL to `onnx:` and a folder, or "
                "to `judge`"
            )
        return self


class TaskSettings(_Group):
    """Scheduling of background tasks, and limits on their cost."""

    workers: int = Field(2, ge=0, le=256, description="Threads of this process that run background tasks; 0 runs none")
    tokens_per_day: int | None = Field(
        None,
        ge=0,
        description="Language model tokens that the tasks of one cube may use per UTC day; default: no limit",
    )


class HeatSettings(_Group):
    """Thresholds of heat; the other rules of the tiers are in `memos.scheduler.rules`."""

    model_config = ConfigDict(allow_inf_nan=False)

    promote_above: float = Field(
        5.0, gt=0, description="Heat at which facts are extracted from a segment into long-term memory"
    )


class UpkeepSettings(_Group):
    """Schedule of periodic maintenance."""

    backup_folder: str | Path | None = Field(
        None, description="Folder, or `s3://BUCKET/PREFIX` (extra `s3`), for backups, one a day; default: none"
    )
    backups_kept: int = Field(
        7, ge=1, le=10_000, description="Number of periodic backups to keep; older ones are removed"
    )


class LimitSettings(_Group):
    """Where input is refused instead of harming the installation."""

    file_bytes: int = Field(104_857_600, ge=1024, description="Maximum file size, in bytes")
    min_free_bytes: int = Field(
        67_108_864, ge=0, description="Minimum free disk space, in bytes; below it, writes are refused"
    )


class ServerSettings(_Group):
    """The server's address, and the limits of a request."""

    host: str = Field("127.0.0.1", description="Address the server listens on; if not loopback, put TLS in front")
    port: int = Field(8765, ge=0, le=65535, description="Port the server listens on; 0 takes a free one")
    new_users: bool = Field(True, description="Create unknown users named in a request with an admin's key")
    fetch_files: bool = Field(
        False,
        description="Fetch files and images given by URL; private addresses are always refused",
    )
    cors_origins: tuple[str, ...] = Field(
        (),
        description="Origins allowed to call the server from a browser (CORS), as a JSON list; on loopback the server "
        "also answers to their hosts, as a proxy passes them on; default: none",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum log level of the server; `debug` may log the text of error messages"
    )


class OidcSettings(_Group):
    """Sign-in to the console with an identity provider (OpenID Connect); it never creates users."""

    issuer: str | None = Field(
        None,
        description="Issuer of an OpenID Connect provider to sign in to the console with, such as "
        "`https://login.example.org`; default: none",
    )
    client_id: str | None = Field(None, description="Id of the console at the provider")
    client_secret: SecretStr | None = Field(
        None, description="Secret of the console at the provider; not needed for a public client"
    )

    @field_validator("issuer")
    @classmethod
    def _safe_issuer(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            local = parts.hostname in ("127.0.0.1", "::1", "localhost")
            if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
                raise ValueError("must be an https URL; http is for loopback only")
        return value


class RecallSettings(_Group):
    """Memory given to a prompt, in `memos chat` and the proxy for OpenAI's clients."""

    model_config = ConfigDict(allow_inf_nan=False)

    tokens: int = Field(1500, ge=100, le=1_000_000, description="Maximum tokens of the memory section in a prompt")


class ActivationSettings(_Group):
    """Attention KV kept of prompts, and the memory it may use in each tier; 0 keeps none there."""

    host_bytes: int = Field(1_073_741_824, ge=0, description="Maximum bytes of KV kept in main memory")
    disk_bytes: int = Field(8_589_934_592, ge=0, description="Maximum bytes of KV kept in files in the home folder")
    prefix_tokens: int = Field(
        1024, ge=0, le=100_000, description="Maximum tokens of memories at the beginning of a cube's prompts; 0: none"
    )


class ParametricSettings(_Group):
    """Training of adapters: on which memories, of which model, and when automatically."""

    night: str | None = Field(
        None,
        description="Hours, UTC, in which adapters are trained automatically, such as `02:00-05:00`; default: none",
    )
    base: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Folder or hub name of the model to train on, where the chat model is behind an endpoint",
    )
    recipe: Mapping[str, bool | int | float | str] = Field(
        default_factory=dict,
        description="Changes to the default recipe, as JSON; see docs/concepts/parametric.md",
    )

    @property
    def stable_days(self) -> float:
        """Return for how many days a memory must be unchanged to be trained on: `stable_days` of the recipe, or 7."""
        return float(self.recipe.get(STABLE_DAYS, 7.0))

    @field_validator("recipe")
    @classmethod
    def _known_recipe(cls, value: Mapping[str, object]) -> Mapping[str, object]:
        recipe_with(value)
        return value

    @field_validator("night")
    @classmethod
    def _known_hours(cls, value: str | None) -> str | None:
        if value is not None:
            TimeWindow.read(value)
        return value


class QuotaSettings(_Group):
    """Limits of keys that have no limits of their own."""

    requests_per_minute: int | None = Field(None, ge=0, description="Requests per minute and key; default: no limit")
    items_per_day: int | None = Field(None, ge=0, description="Memories stored per UTC day and key; default: no limit")
    bytes_per_day: int | None = Field(
        None, ge=0, description="Bytes of text and files stored per UTC day and key; default: no limit"
    )
    tokens_per_day: int | None = Field(
        None, ge=0, description="Tokens of the chat model per UTC day and key; default: no limit"
    )


class Settings(BaseSettings):
    """The installation's settings; nested ones are written `MEMOS_EMBED__THREADS`."""

    model_config = SettingsConfigDict(
        env_prefix="MEMOS_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        hide_input_in_errors=True,  # it may be a key, or a URL with a password in it
    )

    config: Path | None = Field(
        None, description="TOML file of settings; arguments and the environment take precedence"
    )
    home: Path = Field(default_factory=default_home, description="Folder of the embedded installation")
    ledger_url: SecretStr | None = Field(
        None, description="`postgresql://user:password@host/database` of the ledger; default: SQLite in the home folder"
    )
    time_zone: str = Field(
        "UTC", description="Time zone of new cubes; times without an offset are in the cube's time zone"
    )
    retention_days: int = Field(
        30, ge=0, le=36_500, description="Days for which a deleted memory can be restored; then it is erased"
    )
    encryption_key: str | None = Field(
        None,
        pattern=r"(?s)^(file|env|keyring|command):\S.*$",
        description="Master key of an encrypted installation: `file:PATH`, `env:NAME`, `keyring:SERVICE` or "
        "`command:PROGRAM`; see docs/reference/encryption.md",
    )
    cube_passphrase: SecretStr | None = Field(
        None, description="Passphrase of sealed cube files; without it `memos export --seal` and `memos cube load` ask"
    )
    mask_secrets: bool = Field(True, description="Mask keys, tokens and passwords of known formats in all input")
    embed: EmbedSettings = Field(default_factory=EmbedSettings)
    index: IndexSettings = Field(default_factory=IndexSettings)
    qdrant: QdrantSettings = Field(default_factory=QdrantSettings)
    neo4j: Neo4jSettings = Field(default_factory=Neo4jSettings)
    tasks: TaskSettings = Field(default_factory=TaskSettings)
    heat: HeatSettings = Field(default_factory=HeatSettings)
    upkeep: UpkeepSettings = Field(default_factory=UpkeepSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    oidc: OidcSettings = Field(default_factory=OidcSettings)
    recall: RecallSettings = Field(default_factory=RecallSettings)
    rerank: RerankSettings = Field(default_factory=RerankSettings)
    quota: QuotaSettings = Field(default_factory=QuotaSettings)
    activation: ActivationSettings = Field(default_factory=ActivationSettings)
    parametric: ParametricSettings = Field(default_factory=ParametricSettings)
    chat_model: ChatSettings = Field(default_factory=ChatSettings)
    reader_model: ModelSettings = Field(default_factory=ModelSettings)
    vision_model: ModelSettings = Field(default_factory=ModelSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return where settings come from, what counts most first: arguments, the environment, the file."""
        return init_settings, EnvironmentSource(settings_cls), SettingsFile(settings_cls)

    _former: tuple[tuple[str, str], ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _has_one_vector_index(self) -> Self:
        if self.index.vectors == "pgvector":
            if self.ledger_url is None:
                raise ValueError("index.vectors is `pgvector` but there is no PostgreSQL; set MEMOS_LEDGER_URL")
            if self.qdrant.url is not None:
                raise ValueError("index.vectors is `pgvector` but MEMOS_QDRANT__URL is set too; unset one of them")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _ignore_former(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        kept, former = without_former(given, Settings.model_fields) if isinstance(given, Mapping) else (given, ())
        settings = handler(kept)
        settings._former = former
        for name, instead in former:
            warn_former(name, instead)
        return settings

    @property
    def former(self) -> tuple[tuple[str, str], ...]:
        """Return the settings that were given, are no settings any more and have no effect; each with what applies."""
        return self._former

    @property
    def embed_key(self) -> SecretStr | None:
        """Return the key of the embedder's endpoint: the chat model's on one server with it, else OPENAI_API_KEY."""
        if self.embed.endpoint is None:
            return None
        ours, theirs = urlsplit(self.embed.endpoint[1]), urlsplit(self.chat_model.base_url or "")
        if (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc):
            return self.chat_model.api_key
        return sendable(SecretStr(os.environ.get("OPENAI_API_KEY", "")))

    @property
    def embeds_vectors(self) -> bool:
        """Return True if the vector index is in the home folder."""
        return self.index.vectors == "qdrant" and self.qdrant.url is None

    @property
    def needs_folder(self) -> bool:
        """Return True unless all stores are on servers."""
        return self.ledger_url is None or self.embeds_vectors

    @property
    def prefix_room(self) -> int:
        """Return how many tokens of hot and stable memories prompts may begin with; 0 if no model keeps their KV."""
        kept = self.chat_model.local is not None or self.chat_model.prefix_cache != "off"
        return self.activation.prefix_tokens if kept else 0

    @property
    def prefixed(self) -> bool:
        """Return True if prompts begin with such memories."""
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

        A reader without a URL of its own is the chat model, with the fields it names changed. What looks at images
        stands alone: an ordinary chat model cannot see. All are called as the chat model is.
        """
        chat = self.chat_model
        if purpose == "chat":
            return chat if chat.there else None
        own = self.reader_model if purpose == "reader" else self.vision_model
        if own.there:
            return chat.model_copy(update={**dict(own), "prefix_cache": "off"})
        if purpose == "vision" or not chat.there:
            return None
        return chat.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})

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
    def _has_its_own_endpoint(cls, value: ModelSettings) -> ModelSettings:
        if value.local is not None:
            raise ValueError("is a model in this process, which cannot take images; set BASE_URL")
        if value.model_fields_set and value.base_url is None:
            raise ValueError("is set without a BASE_URL; set it too, as the chat model may not take images")
        return value

    @field_validator("chat_model", "reader_model")
    @classmethod
    def _has_an_endpoint(cls, value: ModelSettings, info: ValidationInfo) -> ModelSettings:
        named = value.model_fields_set & ModelSettings.model_fields.keys() and not value.there
        chat_model = info.data.get("chat_model")
        if named and (info.field_name == "chat_model" or chat_model is None or not chat_model.there):
            raise ValueError("is set without a BASE_URL; set the endpoint's URL, or set MODEL to `local:` and a folder")
        return value
