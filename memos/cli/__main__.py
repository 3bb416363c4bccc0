"""`python -m memos.cli`: the command line."""

from memos.cli.app import main

main()
