"""`python -m benchmarks.chaos`."""

from benchmarks.chaos.program import main

if __name__ == "__main__":
    raise SystemExit(main())
