"""Opens an installation and asks one question, as a new process would: `python -m benchmarks.cold_start HOME CUBE`.

Prints, as JSON, how long `MemOS.open` took and the machine's monotonic clock when the first hits were there; the
benchmark that started this process knows when it did.
"""

import sys
import time

from memos import MemOS


def main(home: str, cube: str) -> None:
    """Open, ask, print."""
    started = time.monotonic()
    with MemOS.open(home) as memos:
        opened = time.monotonic()
        hits = len(memos.search("What do you remember about the weather?", cubes=[cube]))
        print(f'{{"open_s": {opened - started}, "answered_at": {time.monotonic()}, "hits": {hits}}}')


if __name__ == "__main__":
    main(*sys.argv[1:])
