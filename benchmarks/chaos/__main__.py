"""`python -m benchmarks.chaos`."""

import signal

from benchmarks.chaos.program import main

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends in order: servers, mounts and folders go
    raise SystemExit(main())
