"""`python -m memos`: the command line."""

from memos.cli import main

main()
