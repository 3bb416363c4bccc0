"""Implementations of the ports, in one folder per technology."""

import os

# onnxruntime from 1.29 on writes an id of the device into the home folder and sends what models run to its makers,
# unless this is set before it is loaded (https://github.com/microsoft/onnxruntime/pull/27379). Who wants that sets 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = ["child", "documents", "encoders", "graph", "http", "local", "lora", "openai", "pgvector", "qdrant"]
