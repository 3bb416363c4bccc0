"""Parts of a profile: templates of dimensions, and traits found in messages with or without a model. Pure."""

__all__ = ["extraction", "template", "traits", "views"]
