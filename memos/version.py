"""The version of the distribution; a test ties it to the changelog's top heading."""

__version__ = "0.1.0"
