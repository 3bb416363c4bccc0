"""Values, identities, ports, filters, settings and pure functions on text."""

__all__ = [
    "aliases",
    "audit",
    "browsing",
    "clock",
    "closing",
    "effective_settings",
    "filters",
    "graph",
    "identities",
    "kv_cache",
    "lora",
    "message_shapes",
    "ports",
    "settings",
    "streaming",
    "telemetry",
    "text",
    "timeline",
    "tokens",
    "types",
]
