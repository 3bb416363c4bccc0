"""The cube and its storage: ledger, changes, erasure, indexing, dump and backup."""

__all__ = [
    "activation",
    "backup",
    "changes",
    "documents",
    "dump",
    "erasure",
    "facts",
    "images",
    "indexing",
    "installation",
    "judge",
    "ledger",
    "parametric",
    "profiles",
    "prompt_prefix",
    "records",
    "relations",
    "standing",
    "tools",
    "verify",
]
