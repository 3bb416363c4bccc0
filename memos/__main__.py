"""`python -m memos`: the command line."""

from memos.cli.app import main

main()
