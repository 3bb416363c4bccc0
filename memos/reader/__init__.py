"""Turns what a program has (messages, strings, chat exports) into drafts of memory items."""
