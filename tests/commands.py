"""Runs commands as processes of their own, forked from one that has the command line loaded: loading takes a second."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_STREAMS = ("stdin", "stdout", "stderr")
_LOCK = threading.Lock()
_servers: list[subprocess.Popen[str]] = []


def run(
    arguments: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Return what `memos` with these arguments printed, decoded as UTF-8, and its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in _STREAMS}
        paths["stdin"].write_bytes(stdin)
        request = {
            "arguments": list(arguments), "env": dict(os.environ if env is None else env), "timeout": timeout,
            "streams": [str(paths[name]) for name in _STREAMS],
        }  # fmt: skip
        with _LOCK:
            server = _server()
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            answer = server.stdout.readline()
        assert answer, f"the command {arguments} took the process it was forked from with it"
        out, err = (paths[name].read_bytes().decode() for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(["memos", *arguments], int(answer), out, err)


def _server() -> subprocess.Popen[str]:
    if not _servers:
        command = [sys.executable, "-c", "from tests.commands import serve; serve()"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("MEMOS_")}
        started = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**env, "PYTHONUTF8": "1"}
        )
        _servers.append(started)
        atexit.register(_stop, started)
    return _servers[0]


def _stop(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.close()
    server.wait(30)
    server.stdout.close()


def serve() -> None:
    """Fork a command for each request on standard input until it ends; answer with its exit code."""
    import memos.cli  # noqa: F401, PLC0415 - what each fork then has loaded

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
        sys.stdout.write(f"{_code(child, request['timeout'])}\n")
        sys.stdout.flush()


def _code(child: int, timeout: float) -> int:
    timer = threading.Timer(timeout, os.kill, (child, 9))
    timer.start()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        timer.cancel()


def _become(request: dict[str, object]) -> None:
    """Run a command in this process, which ends with it."""
    import memos.cli  # noqa: PLC0415

    code = 1
    try:
        for number, path in enumerate(request["streams"]):  # type: ignore[arg-type]
            descriptor = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        os.environ.clear()
        os.environ.update(request["env"])  # type: ignore[arg-type]
        sys.argv = ["memos", *request["arguments"]]  # type: ignore[misc]
        memos.cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:  # noqa: BLE001 - as Python would end
        import traceback  # noqa: PLC0415

        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
