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
    "relations",
    "standing",
    "tools",
    "verify",
]
