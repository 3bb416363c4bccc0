"""Run the Alembic migrations in an open transaction; refuse a database of a newer program."""

from __future__ import annotations

from importlib import resources

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory

from memos.errors import IntegrityError
from memos.memcube.ledger import schema


def upgrade(connection: sa.Connection, found: str | None, where: str) -> None:
    script = _script()
    known = {revision.revision for revision in script.walk_revisions()}
    if found is not None and found not in known:
        raise IntegrityError(
            f"{where} was written by a newer hippocube (schema {found}, this one knows up to "
            f"{script.get_current_head()}). Upgrade hippocube, or open another --data-dir. Nothing was changed."
        )
    config = Config()
    with EnvironmentContext(
        config, script, fn=lambda revision, _context: script._upgrade_revs("head", revision)
    ) as environment:
        environment.configure(connection=connection, target_metadata=schema.metadata, transactional_ddl=False)
        environment.run_migrations()


def _script() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(resources.files("memos.memcube.ledger") / "migrations"))
    return ScriptDirectory.from_config(config)
