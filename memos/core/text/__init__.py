"""Text functions that reader and search share: checks, statements, entities, rendering. Pure functions."""

__all__ = [
    "acknowledgements",
    "attributes",
    "caches",
    "claims",
    "contrasts",
    "corrections",
    "frames",
    "instructions",
    "languages",
    "matching",
    "preferences",
    "redaction",
    "rendering",
    "repetition",
    "sentences",
    "statements",
    "times",
    "tool_calls",
    "validation",
    "wording_by_language",
]
