"""Start the hook: what is imported is compiled once, while this file is compiled on each run."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from ask_memory import main  # type: ignore[import-not-found]

main(sys.argv[1:])
os._exit(0)  # without the end of the interpreter: a millisecond
