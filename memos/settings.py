"""Every setting of an installation: one frozen object, built once from `MEMOS_*` and passed down."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_home() -> Path:
    """Return the user's data folder for memstrata, as the operating system places it."""
    return Path(platformdirs.user_data_dir("memstrata", appauthor=False))


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
        2.0, gt=0, le=3600, description="Longest time an applied change stays unflushed in an index"
    )
    flush_every_rows: int = Field(2000, ge=1, description="Applied outbox rows after which the indexes are flushed")
    optimise_after: int = Field(
        5_000, ge=1000, description="Points written before graphs for fast search are built in the background"
    )
    park_after: int = Field(
        5, ge=1, description="Failures after which an outbox row is parked and reported by `verify`"
    )


class QdrantSettings(BaseModel):
    """A Qdrant server that holds the vector index; without a URL the embedded engine does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(None, description="Qdrant's REST URL, such as `http://127.0.0.1:6333`; default: embedded")
    api_key: SecretStr | None = Field(None, description="Qdrant's API key")
    grpc_port: int | None = Field(None, ge=1, le=65535, description="Qdrant's gRPC port; set it to use gRPC")
    collection: str = Field(
        "memos", min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_]+$", description="Name the collections begin with"
    )
    timeout_s: int = Field(10, ge=1, le=600, description="Longest time one call to Qdrant may take")
    on_disk: bool = Field(False, description="Keep full vectors on Qdrant's disk and only 8-bit ones in its memory")
    shards: int = Field(1, ge=1, le=1024, description="Shards of a new collection in a Qdrant cluster")
    replicas: int = Field(1, ge=1, le=16, description="Copies of each shard in a Qdrant cluster")


class Neo4jSettings(BaseModel):
    """A Neo4j server that holds the graph index; without a URL the embedded engine does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        None, description="Neo4j's Bolt URL, `neo4j+s://` for TLS, such as `bolt://127.0.0.1:7687`; default: embedded"
    )
    user: str = Field("neo4j", description="Neo4j's user")
    password: SecretStr | None = Field(None, description="Neo4j's password")
    database: str = Field("neo4j", description="Neo4j's database")
    timeout_s: int = Field(10, ge=1, le=600, description="Longest time one transaction in Neo4j may take")


class LimitSettings(BaseModel):
    """Where input is refused instead of harming the installation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message_bytes: int = Field(1_048_576, ge=1024, description="Largest message in UTF-8 bytes")
    messages_per_add: int = Field(1000, ge=1, description="Most messages in one `add`")
    top_k: int = Field(1000, ge=1, description="Largest `top_k`; more is refused")
    query_chars: int = Field(20_000, ge=100, description="Longest question in characters")
    min_free_bytes: int = Field(67_108_864, ge=0, description="Free disk space under which writes are refused")


class Settings(BaseSettings):
    """The installation's settings; nested ones are written `MEMOS_EMBED__THREADS`."""

    model_config = SettingsConfigDict(env_prefix="MEMOS_", env_nested_delimiter="__", frozen=True, extra="ignore")

    home: Path = Field(default_factory=default_home, description="Folder of the embedded installation")
    ledger_url: SecretStr | None = Field(
        None, description="`postgresql://user:password@host/database` of the ledger; default: SQLite in the home folder"
    )
    time_zone: str = Field("UTC", description="Time zone new cubes get; naive times are read in their cube's")
    retention_days: int = Field(
        30, ge=0, le=36_500, description="Days a deleted item can still be rolled back; then it is erased"
    )
    embed: EmbedSettings = Field(default_factory=EmbedSettings)
    index: IndexSettings = Field(default_factory=IndexSettings)
    qdrant: QdrantSettings = Field(default_factory=QdrantSettings)
    neo4j: Neo4jSettings = Field(default_factory=Neo4jSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"{value!r} is not a time zone such as Europe/Paris") from error
        return value
