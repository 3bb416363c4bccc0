"""Documents of every format as pages of Markdown, read in a child process."""

__all__ = ["reader"]
