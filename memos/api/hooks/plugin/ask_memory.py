"""The hook of the Claude Code plugin: asks a hippocube server on each event, and never stops the agent.

It is copied into the plugin's folder and run as `python -I -S hook.py EVENT name=value…`, so it imports nothing of
hippocube. Claude Code waits for it with each prompt: on that way it imports C modules and `os` alone (`json`, `typing`
and `socket` take 6 to 8 ms of processor time each, `http.client` 24), passes the event on as it came, and prints the
answer as it is.

Options: `home` (the data folder whose server to ask) or `url` (of a server elsewhere; its key is in `MEMOS_API_KEY`),
`user`, `scope=project`, and `timeout_s`, the longest that a prompt may wait.
"""

import os
import sys
from time import monotonic

TYPE_CHECKING = False  # `typing` is one of those that take long
if TYPE_CHECKING:
    from types import ModuleType

try:
    from _socket import SOCK_STREAM, getaddrinfo, socket  # the class below `socket.socket`
except ImportError:  # another implementation of Python
    from socket import SOCK_STREAM, getaddrinfo, socket  # type: ignore[assignment]
try:
    from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]  # Python 3.12 and newer
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from hashlib import sha256

PATH = "/hooks/claude-code"
_STORE_BEHIND_S = 25.0
"""Longest that storing takes when Claude Code does not wait for it."""


class Away(Exception):
    """No server answers."""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(_message(body) or f"status {status}")
        self.status = status


# The project of a folder


def project_of(folder: str) -> str:
    """Return the name of a folder's project: by its git remote (`github.com/ana/notes`), or by its path.

    A remote's credentials, scheme and port are left out, so that each way to clone it gives the same name.
    """
    root = _git_root(folder)
    if root is not None:
        named = _name_of_remote(_remote(_git_config(root)))
        if named:
            return named
    place = os.path.realpath(root or folder)
    digest = sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"local/{os.path.basename(place) or 'root'}-{digest}"


def _git_root(folder: str) -> str | None:
    here = os.path.abspath(folder)
    while not os.path.exists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above
    return here


def _git_config(root: str) -> str:
    """Return the text of a repository's configuration; a worktree has that of its repository."""
    git = os.path.join(root, ".git")
    if not os.path.isdir(git):
        git = os.path.join(root, _read(git).removeprefix("gitdir:").strip())
        common = _read(os.path.join(git, "commondir")).strip()
        git = os.path.join(git, common) if common else git
    return _read(os.path.join(git, "config"))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _remote(config: str) -> str:
    """Return the address of the remote `origin`, or else of the first one."""
    found: dict[str, str] = {}
    section = ""
    for line in map(str.strip, config.splitlines()):
        if line.startswith("["):
            section = line
        elif section.startswith('[remote "') and line.partition("=")[0].strip().lower() == "url":
            found.setdefault(section[9:].partition('"')[0], line.partition("=")[2].strip().strip('"'))
    return found.get("origin") or next(iter(found.values()), "")


def _name_of_remote(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if separator and scheme != "file":
        authority, _, path = rest.partition("/")
        host = authority.rpartition("@")[2].partition(":")[0]
    else:  # git@host:path, or a folder
        authority, colon, path = url.partition(":")
        if separator or not colon or "/" in authority or len(authority) == 1:
            return ""
        host = authority.rpartition("@")[2]
    path = path.strip("/").removesuffix(".git").strip("/")
    return f"{host}/{path}".lower() if host and path else ""


# Asking a server


class Server:
    """A connection to the server of a data folder, or of an address."""

    def __init__(self, options: dict[str, str], timeout_s: float) -> None:
        self._until = monotonic() + timeout_s
        self._headers = {"Content-Type": "application/json"}
        if options.get("user"):
            self._headers["User"] = _quoted(options["user"])
        if options.get("scope") == "project":
            self._headers["Project"] = _quoted(project_of(os.environ.get("CLAUDE_PROJECT_DIR") or os.getcwd()))
        if "url" in options:
            self._headers["Authorization"] = f"Bearer {os.environ.get('MEMOS_API_KEY', '')}"
            self._url = options["url"].rstrip("/")
            self._ask = self._ask_by_library  # type: ignore[method-assign]
        else:
            self._connect_in(options["home"])

    def post(self, path: str, body: bytes) -> bytes:
        """Return the body of the answer, empty for none. Raises: Away, Refused."""
        try:
            status, answer = self._ask("POST", path, self._headers, body)
        except (OSError, ValueError) as error:
            raise Away(_reason(error)) from error
        if status not in (200, 204):
            raise Refused(status, answer)
        return answer

    def _connect_in(self, home: str) -> None:
        """Connect to the server that has a data folder open, once it has proved that it is that one."""
        told = _read(os.path.join(home, "server.json"))
        url, token = (told.partition(f'"{name}": "')[2].partition('"')[0] for name in ("url", "token"))
        if not url or not token:
            raise Away(f"no server has {home} open")
        host, _, port = url.removeprefix("http://").rpartition(":")
        try:
            self._open(host.strip("[]"), int(port))
            challenge = os.urandom(16).hex()
            # Another program may have the address of a server that was killed.
            status, proof = self._ask("GET", "/local/proof", {"Challenge": challenge}, b"")
        except (OSError, ValueError) as error:
            raise Away(f"the server that had {home} open does not answer: {_reason(error)}") from error
        if status != 200 or proof.strip(b'"') != _hmac(token.encode(), challenge.encode()).encode():
            raise Away(f"another program has the address of the server of {home}")
        self._headers["Authorization"] = f"Bearer {token}"

    def _open(self, host: str, port: int) -> None:
        # As bytes: the codec of names that are text takes 4 ms to import.
        family, kind, number, _, address = getaddrinfo(host.encode(), port, 0, SOCK_STREAM)[0]
        self._socket = socket(family, kind, number)
        self._socket.settimeout(self._left_s())
        self._socket.connect(address)
        self._host = f"{host}:{port}"

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        head = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.settimeout(self._left_s())
        self._socket.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        told, _, answer = data.partition(b"\r\n\r\n")
        length = told.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        while len(answer) < int(length or 0):
            answer += self._receive()
        return int(told.split(b" ", 2)[1]), answer

    def _left_s(self) -> float:
        left_s = self._until - monotonic()
        if left_s <= 0:
            raise OSError("it took too long")
        return left_s

    def _receive(self) -> bytes:
        self._socket.settimeout(self._left_s())
        got: bytes = self._socket.recv(65_536)
        if not got:
            raise OSError("the connection was closed")
        return got

    def _ask_by_library(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Ask a server elsewhere, perhaps behind TLS and a proxy: 30 ms later."""
        from urllib.error import HTTPError  # noqa: PLC0415
        from urllib.request import HTTPRedirectHandler, Request, build_opener  # noqa: PLC0415

        class Stay(HTTPRedirectHandler):
            """Follows nowhere: the key is for this server alone."""

            def redirect_request(self, *_: object) -> None:
                return None

        if not self._url.startswith(("https://", "http://")):
            raise OSError(f"{self._url} must begin with http:// or https://")
        request = Request(self._url + path, body or None, headers, method=method)  # noqa: S310
        try:
            with build_opener(Stay).open(request, timeout=self._left_s()) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()


def _hmac(key: bytes, message: bytes) -> str:
    """Return HMAC-SHA-256 (RFC 2104) in hexadecimal; `hmac` takes 3 ms to import. The key has at most 64 bytes."""
    padded = key.ljust(64, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in padded) + message).digest()
    return str(sha256(bytes(byte ^ 0x5C for byte in padded) + inner).hexdigest())


def _quoted(text: str) -> str:
    """Return text as a header can carry it, percent-encoded."""
    raw = text.encode("utf-8", "surrogateescape")
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/:@"
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in raw)


def _message(body: bytes) -> str:
    import json  # noqa: PLC0415

    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# The events


_EVENTS = {"start": "SessionStart", "prompt": "UserPromptSubmit", "agent": "SubagentStart"}


def main(arguments: list[str]) -> None:
    """Handle one event; whatever happens, Claude Code goes on."""
    event = arguments[0] if arguments else ""
    try:
        options = dict(each.split("=", 1) for each in arguments[1:])
        (_ask if event in _EVENTS else _store)(options, event, sys.stdin.buffer.read())
    except Exception as error:  # noqa: BLE001 - an exit code other than 0 is shown as an error, and 2 stops the agent
        _tell(f"the hook failed ({type(error).__name__}: {_reason(error)}); the session goes on without memory.")
    sys.stdout.flush()


def _ask(options: dict[str, str], event: str, body: bytes) -> None:
    """Pass an event on, and print what the server would have Claude Code do."""
    lost = _transcripts().register(body) if event == "start" else ""
    try:
        answer = Server(options, float(options["timeout_s"])).post(PATH, body)
    except Away as away:
        _tell(f"{lost}memory is away ({away}); the session goes on without it.", _EVENTS[event])
    except Refused as refused:
        _tell(f"{lost}memory refused ({refused}); the session goes on without it.", _EVENTS[event])
    else:
        sys.stdout.buffer.write(_with_note(answer, lost) if lost else answer)


def _with_note(answer: bytes, note: str) -> bytes:
    import json  # noqa: PLC0415

    told = {**json.loads(answer or b"{}"), "systemMessage": f"hippocube: {note.strip()}"}
    return json.dumps(told).encode()


def _store(options: dict[str, str], event: str, body: bytes) -> None:
    """Store what was said since the last time, of this session and of those that could not be stored then."""
    within_s = _STORE_BEHIND_S if event == "waiting" else float(options["timeout_s"])
    note = _transcripts().store(lambda: Server(options, within_s), body, ended=event != "compact", within_s=within_s)
    if note:
        _tell(note)


def _transcripts() -> "ModuleType":
    return __import__("transcripts")  # beside this file; not on the way of a prompt


def _tell(note: str, event: str | None = None) -> None:
    """Tell the user, who sees `systemMessage`, and the model, which sees the context of some events."""
    import json  # noqa: PLC0415

    said: dict[str, object] = {"systemMessage": f"hippocube: {note}"}
    if event is not None:
        context = "Long-term memory cannot be reached now: nothing is recalled, and nothing can be stored or corrected."
        said["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": context}
    sys.stdout.write(json.dumps(said))
