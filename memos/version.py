"""The version of the distribution; a test ties it to the changelog's top heading."""

__version__ = "0.2.0"
