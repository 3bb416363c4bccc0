"""Facts found in messages, by pattern or by a model."""
