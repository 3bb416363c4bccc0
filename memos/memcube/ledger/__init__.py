"""The ledger: tables, transactions and row functions over SQLAlchemy."""

__all__ = [
    "access",
    "adapters",
    "cubes",
    "engine",
    "files",
    "graph",
    "idempotency",
    "items",
    "outbox",
    "postgres",
    "prepared",
    "queries",
    "queues",
    "reading",
    "retention",
    "schema",
    "segments",
    "tasks",
    "tier_moves",
    "tools",
]
