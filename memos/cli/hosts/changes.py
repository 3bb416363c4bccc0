"""Changes of files that are shown as a diff before they are made, each file whole or not at all."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memos.cli.shared import Output, say, sure
from memos.errors import BackendUnavailable, InvalidInput

BACKUP = ".before-hippocube"
"""What is added to the name of a file for a copy of it as it was."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A text that a file is to have; None removes it.

    Attributes:
        path: The file.
        before: Its text, None if there is no file.
        after: The text that it is to have, None for no file.
        mode: Its mode when it is new.
        secret: What the diff must not show.
        copy: Where the text before is kept, unless there is a copy already.
        told: The diff shows it.
    """

    path: Path
    before: str | None
    after: str | None
    mode: int = 0o644
    secret: str | None = None
    copy: Path | None = None
    told: bool = True

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff."""
        sides = ["" if text is None else self._shown(text) for text in (self.before, self.after)]
        names = [str(self.path) if text is not None else "/dev/null" for text in (self.before, self.after)]
        old, new = (side.splitlines() for side in sides)
        yield from difflib.unified_diff(old, new, names[0], names[1], lineterm="")

    def apply(self) -> None:
        """Write or remove the file. Raises: BackendUnavailable."""
        try:
            if self.copy is not None and self.before is not None and not self.copy.exists():
                write(self.copy, self.before, self.path.stat().st_mode & 0o777)
            if self.after is None:
                self.path.unlink()
                if self.path.parent not in (Path.home(), Path.cwd()):
                    with suppress(OSError):  # it has other files
                        self.path.parent.rmdir()
            else:
                write(self.path, self.after, self.mode)
        except OSError as error:
            raise BackendUnavailable(f"Cannot change {self.path}: {error.strerror or error}") from error

    def _shown(self, text: str) -> str:
        return text if not self.secret else text.replace(self.secret, "…")


def read(path: Path) -> str | None:
    """Return the text of a file, None if there is none. Raises: InvalidInput."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("file", f"{path} cannot be read as text ({error}); it is left as it is") from error


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file whole or not at all; a link stays one, and a file keeps its mode."""
    path = path.resolve()  # where a link leads
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        mode = path.stat().st_mode & 0o777
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
        Path(beside).chmod(mode)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


_MOST_LINES = 80
"""Longer additions are not shown whole before the question."""


def _lines_added(change: FileChange) -> int:
    return len(change.after.splitlines()) if change.before is None and change.after is not None else 0


def make(changes: Sequence[FileChange], question: str, *, yes: bool, dry_run: bool, as_json: bool) -> Output:
    """Show the changes, ask, and make them; many new lines are shown with `dry_run` alone.

    Raises: typer.Abort, InvalidInput (nobody can be asked).
    """
    changes = [change for change in changes if change.before != change.after]
    diff = [line for change in changes if change.told for line in change.diff()]
    if not as_json:
        whole = dry_run or sum(map(_lines_added, changes)) <= _MOST_LINES
        for change in changes:
            if change.told and (whole or change.before is not None):
                for line in change.diff():
                    say(line)
            elif change.told:
                say(f"new: {change.path}, {_lines_added(change)} lines")
        if not whole:
            say("`--dry-run` shows the new files whole.")
    if changes and not dry_run:
        sure(question, yes=yes)
        for change in changes:
            change.apply()
    made = bool(changes) and not dry_run
    told = "Done." if made else "Nothing was changed (--dry-run)." if changes else "Nothing to change."
    value = {"changed": made, "files": [str(change.path) for change in changes], "diff": "\n".join(diff)}
    return Output(value, [told])
