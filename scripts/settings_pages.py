"""Writes docs/reference/settings.md and .env.example from the settings.

Usage: python scripts/settings_pages.py [--check]

With `--check` nothing is written; the exit status is 1 when a page is not what the code says, or when a setting is in
no group or in two.
"""

from __future__ import annotations

import sys
import typing
from pathlib import Path
from types import UnionType
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from memos.core.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
PAGE, EXAMPLE = ROOT / "docs/reference/settings.md", ROOT / ".env.example"
BEGIN, END = "<!-- settings: scripts/settings_pages.py -->\n", "<!-- end of settings -->\n"
HEAD = """\
# Every setting of hippocube with its default. The program does not read this file by itself: copy it to .env,
# take away the '#' of the lines you change, and load it with `set -a; . ./.env; set +a`.
"""
GROUPS = {
    "Everyday": """
        home ledger_url time_zone mask_secrets embed.model chat_model.base_url chat_model.model chat_model.api_key
        server.host server.port
    """,
    "For operators": """
        config encryption_key retention_days qdrant.url qdrant.api_key neo4j.url neo4j.password tasks.workers
        tasks.tokens_per_day upkeep.backup_folder upkeep.backups_kept limits.file_bytes
        limits.min_free_bytes oidc.issuer oidc.client_id oidc.client_secret
        server.new_users server.fetch_files server.cors_origins
        server.log_level quota.requests_per_minute quota.items_per_day quota.bytes_per_day quota.tokens_per_day
    """,
    "Advanced": """
        chat_model.timeout_s chat_model.parallel chat_model.max_tokens chat_model.prefix_cache reader_model.base_url
        reader_model.model reader_model.api_key vision_model.base_url vision_model.model vision_model.api_key
        embed.threads index.vectors index.wait_s qdrant.on_disk heat.promote_above recall.tokens
        rerank.model rerank.base_url rerank.api_key activation.host_bytes activation.disk_bytes
        activation.prefix_tokens parametric.base parametric.night parametric.recipe
        cube_passphrase
    """,
}
EXAMPLES = {
    "home": "~/.local/share/hippocube",
    "config": "/etc/hippocube.toml",
    "encryption_key": "file:/etc/hippocube.key",
    "ledger_url": "postgresql://memos:password@127.0.0.1/memos",
    "qdrant.url": "http://127.0.0.1:6333",
    "neo4j.url": "bolt://127.0.0.1:7687",
    "chat_model.base_url": "http://127.0.0.1:8080/v1",
    "chat_model.model": "qwen3-8b",
}
ALLOWED = {
    "ledger_url": "a URL",
    "time_zone": "an IANA name",
    "encryption_key": "`file:`, `env:`, `keyring:` or `command:` and a value",
    "embed.model": "see the description",
    "parametric.night": "`HH:MM-HH:MM`, an hour or more",
}


def fields(model: type[BaseModel] = Settings, prefix: str = "") -> dict[str, FieldInfo]:
    """Return the settings by name, such as `server.port`."""
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= fields(field.annotation, f"{name}.")
        else:
            found[prefix + name] = field
    return found


def variable(name: str) -> str:
    """Return the name of a setting in the environment."""
    return f"MEMOS_{name.replace('.', '__').upper()}"


def _bound(field: FieldInfo, kind: type, attribute: str) -> float | None:
    return next((getattr(each, attribute) for each in field.metadata if isinstance(each, kind)), None)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def allowed(name: str, field: FieldInfo) -> str:
    """Return which values a setting may have, in words."""
    if name in ALLOWED:
        return ALLOWED[name]
    kinds = _kinds(field.annotation)
    choices = [choice for kind in kinds if typing.get_origin(kind) is Literal for choice in typing.get_args(kind)]
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if bool in kinds:
        return "`true`, `false`"
    least, above = _bound(field, Ge, "ge"), _bound(field, Gt, "gt")
    most = _bound(field, Le, "le")
    assert _bound(field, Lt, "lt") is None
    if least is not None or above is not None:
        start = f"above {_number(above)}" if above is not None else f"from {_number(least or 0)}"
        return start if most is None else f"{start} to {_number(most)}"
    if Path in kinds:
        return "a path"
    if any(typing.get_origin(kind) is tuple for kind in kinds):
        return "a JSON list"
    return "a URL" if name.endswith("url") else "text"


def _kinds(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is typing.Annotated:
        return _kinds(typing.get_args(annotation)[0])
    if isinstance(annotation, UnionType) or typing.get_origin(annotation) is typing.Union:
        return [kind for each in typing.get_args(annotation) for kind in _kinds(each)]
    return [annotation]


def default(name: str, field: FieldInfo) -> str:
    """Return a default as the environment would say it, empty for none."""
    value = EXAMPLES["home"] if name == "home" else field.get_default(call_default_factory=True)
    if value is None or value in ((), {}):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def table(names: list[str]) -> str:
    """Return a table of settings."""
    rows = ["| variable | default | allowed | meaning |", "|---|---|---|---|"]
    for name in names:
        field = fields()[name]
        value = default(name, field)
        shown = "the user's data folder" if name == "home" else f"`{value}`" if value else "none"
        rows.append(f"| `{variable(name)}` | {shown} | {allowed(name, field)} | {field.description} |")
    return "\n".join(rows)


def pages() -> dict[Path, str]:
    """Return what the pages should be."""
    groups = {title: names.split() for title, names in GROUPS.items()}
    named = [name for names in groups.values() for name in names]
    if sorted(named) != sorted(fields()):
        wrong = sorted({*named} ^ {*fields()}) or "a name stands twice"
        raise SystemExit(f"scripts/settings_pages.py: every setting belongs into one group: {wrong}")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    tables = "\n\n".join(f"## {title}\n\n{table(names)}" for title, names in groups.items())
    example = [HEAD]
    for title, names in groups.items():
        example.append(f"# {title}\n")
        for name in names:
            field = fields()[name]
            value = EXAMPLES.get(name, default(name, field))
            example.append(f"# {field.description}\n#{variable(name)}={value}\n")
    return {PAGE: f"{before}{BEGIN}\n{tables}\n\n{END}{after}", EXAMPLE: "\n".join(example)}


def main() -> int:
    """Write the pages, or check them."""
    wanted = pages()
    if "--check" in sys.argv:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in wanted.items()))
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
