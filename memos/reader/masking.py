"""Mask the input of one call, whatever its shape, and count what was masked by place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from memos.core.message_shapes import Shaped, shape_messages
from memos.core.text.redaction import mask
from memos.core.text.statements import key_of
from memos.core.text.validation import MAX_MESSAGE_BYTES
from memos.core.types import Fact, Json, Masked
from memos.memcube import changes
from memos.memcube.changes import Change

# What others refer to by its exact letters, and what is no text.
_KEPT = frozenset({"message_id", "tool_call_id", "id", "chat_time", "recalled", "cited"})
_NAMED = ("key", "token", "secret", "auth", "password", "pwd")
_FILE = re.compile(r"data:[^\s,]{0,200};base64,[A-Za-z0-9+/=]*\Z")
_MESSAGE = re.compile(r"messages\[\d+\](?:\.tool_calls\[\d+\])?")
_MOST_NESTING = 64
_MOST_SHOWN = 100


class Masking:
    """The masking of one call; without `secrets` and `personal` it does nothing."""

    def __init__(self, *, secrets: bool, personal: bool) -> None:
        self._secrets, self._personal = secrets, personal
        self._counts: Counter[tuple[str, str]] = Counter()

    @property
    def masked(self) -> tuple[Masked, ...]:
        """The masked passages by place and kind; beyond 100 places they are summed up under `...`."""
        counts = self._counts
        if len(counts) > _MOST_SHOWN:
            shown = dict(list(counts.items())[:_MOST_SHOWN])
            counts = Counter(shown)
            for (where, kind), count in self._counts.items():
                if (where, kind) not in shown:
                    counts["...", kind] += count
        return tuple(Masked(where, kind, count) for (where, kind), count in counts.items())

    @property
    def kinds(self) -> Mapping[str, int]:
        """The number of masked passages by kind; safe to log, as it has no memory text."""
        kinds: Counter[str] = Counter()
        for (_, kind), count in self._counts.items():
            kinds[kind] += count
        return kinds

    def text(self, where: str, value: str) -> str:
        return self._masked(where, value, personal=self._personal)

    def whole(self, where: str, value: str) -> str:
        return self._mask(where, value, personal=self._personal)

    def name(self, where: str, value: str) -> str:
        """Mask secrets in a name; personal data stays, since it tells names apart."""
        return self._masked(where, value, personal=False)

    def any(self, where: str, value: Json) -> Json:
        return self._any(where, value, _MOST_NESTING)

    def fields(self, raw: Mapping[str, Json], where: str = "") -> dict[str, Json]:
        return {name: self.any(f"{where}.{name}" if where else name, value) for name, value in raw.items()}

    def messages(self, raw: Json | Shaped, most: int) -> Shaped:
        """Mask messages of any known shape, unless there are more than `most`: these are refused, not stored."""
        shaped = shape_messages(raw)
        given = shaped.messages
        if not isinstance(given, list) or len(given) > most:
            return shaped
        masked = [
            self.text(f"messages[{place}].content", entry)
            if isinstance(entry, str)
            else self.any(f"messages[{place}]", entry)
            for place, entry in zip(shaped.places, given, strict=True)
        ]
        return replace(shaped, messages=masked)

    def fact(self, where: str, fact: Fact) -> Fact:
        subject, before = self.text(f"{where}.subject", fact.subject), key_of(fact.subject, "")
        key = fact.key
        if key is not None and key.startswith(before):
            key = key_of(subject, "") + key.removeprefix(before)
        return replace(
            fact,
            memory=self.text(f"{where}.memory", fact.memory),
            subject=subject,
            key=None if key is None else self.text(f"{where}.key", key),
            value=None if fact.value is None else self.text(f"{where}.value", fact.value),
            tags=tuple(self.any(f"{where}.tags", list(fact.tags))),
            entities=tuple(self.any(f"{where}.entities", list(fact.entities))),
            info=self.any(f"{where}.info", fact.info),
        )

    def record(self, change: Change) -> None:
        if self._counts:
            changes.record(change, "mask", dict(self.kinds))

    def _masked(self, where: str, value: str, *, personal: bool) -> str:
        # What is larger is refused, not stored.
        return value if len(value) > MAX_MESSAGE_BYTES else self._mask(where, value, personal=personal)

    def _mask(self, where: str, value: str, *, personal: bool) -> str:
        if not (self._secrets or personal):
            return value
        masked, counts = mask(value, secrets=self._secrets, personal=personal)
        for kind, count in counts.items():
            self._counts[where, kind] += count
        return masked

    def _any(self, where: str, value: Json, depth: int) -> Json:
        if isinstance(value, str):
            # A file inside a message: letters that stand for bytes, in which any format may turn up by chance.
            return value if _FILE.match(value) else self.text(where, value)
        if depth == 0:
            return value
        if isinstance(value, Mapping):
            return {
                self.text(where, name) if isinstance(name, str) else name: self._entry(where, name, entry, depth)
                for name, entry in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._any(f"{where}[{place}]", entry, depth - 1) for place, entry in enumerate(value)]
        return value

    def _entry(self, where: str, name: Json, value: Json, depth: int) -> Json:
        if name in _KEPT and _MESSAGE.fullmatch(where):
            return value
        here = f"{where}.{name}" if isinstance(name, str) and name.isidentifier() and len(name) <= 64 else where
        masked = self._any(here, value, depth - 1)
        if isinstance(masked, str) and isinstance(name, str) and any(word in name.lower() for word in _NAMED):
            # Some formats are known by the name that stands before them: {"Authorization": "Basic ..."}
            said = self.text(here, f"{name}: {masked}")
            return said.removeprefix(f"{name}: ") if said.startswith(f"{name}: ") else masked
        return masked
