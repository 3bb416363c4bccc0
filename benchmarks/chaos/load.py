"""Clients of several tenants: each asks for one thing after the other, and tells the history what came of it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any, NamedTuple

from benchmarks.chaos.history import ABSENT, ERASED, Fault, History, Kind, Memory, State

_TIMEOUT_S = 20.0
_MOST_HERE = 30
_AGAIN_S = 0.1
_UNWRITTEN = ("othing was written", "othing was stored", "othing was changed", "othing was saved")


class Answer(NamedTuple):
    """An answer: `status` 0 without one, which went wrong as `problem` says."""

    status: int
    body: Any
    problem: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """Whether the answer says that nothing was changed."""
        if self.status == 409:
            return "still running, or was interrupted" not in str(self.body)
        return 400 <= self.status < 500 or any(told in str(self.body) for told in _UNWRITTEN)


class Connection:
    """Asks one of several servers, on one connection each that is opened again once it broke."""

    def __init__(self, ports: Callable[[], Sequence[int]], key: str, dice: Random) -> None:
        self._ports, self._key, self._dice = ports, key, dice
        self._open: dict[int, http.client.HTTPConnection] = {}

    def ask(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Answer:
        port = self._dice.choice(self._ports())
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        sent = None if body is None else json.dumps(body).encode()
        connection = self._open.pop(port, None) or http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            told = answer.read()
            found = json.loads(told) if told else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            return Answer(0, None, type(error).__name__)
        self._open[port] = connection
        if answer.status < 400:
            return Answer(answer.status, found)
        told = found.get("error", {}) if isinstance(found, dict) else {}
        return Answer(answer.status, told.get("message", found), f"{answer.status} {told.get('code', '')}".strip())

    def text(self, path: str) -> str:
        """Return an answer that is no JSON, nothing where there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self._ports()[0], timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return ""
        finally:
            connection.close()

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()


class Gate:
    """Lets clients work, or waits until none does."""

    def __init__(self) -> None:
        self._open, self._working = threading.Event(), 0
        self._changed = threading.Condition()
        self.ended = False

    def pause(self) -> None:
        """Return once no client is in the middle of something."""
        self._open.clear()
        with self._changed:
            while self._working:
                self._changed.wait()

    def resume(self) -> None:
        self._open.set()

    def end(self) -> None:
        self.ended = True
        self.resume()

    @property
    def closing(self) -> bool:
        return not self._open.is_set() or self.ended

    def enter(self) -> bool:
        """Wait until one may work; return False at the end."""
        while True:
            self._open.wait()
            with self._changed:
                if self.ended:
                    return False
                if self._open.is_set():
                    self._working += 1
                    return True

    def leave(self) -> None:
        with self._changed:
            self._working -= 1
            self._changed.notify_all()


class Sharing:
    """Who may read another's cube: `certain` is None once a change of it had no answer, until the next survey."""

    def __init__(self, tenants: Sequence[str]) -> None:
        self.lock = threading.Lock()
        self.certain: dict[tuple[str, str], bool | None] = {
            (one, other): False for one in tenants for other in tenants if one != other
        }
        self.versions: dict[tuple[str, str], int] = dict.fromkeys(self.certain, 0)

    def change(self, pair: tuple[str, str], now: bool | None) -> None:
        with self.lock:
            self.certain[pair] = now
            self.versions[pair] += 1

    def look(self, pair: tuple[str, str]) -> tuple[bool | None, int]:
        with self.lock:
            return self.certain[pair], self.versions[pair]


class Client:
    """One client of a tenant, in a thread. It alone changes the memories it added."""

    def __init__(
        self,
        name: str,
        tenant: str,
        tenants: Sequence[str],
        connection: Connection,
        history: History,
        gate: Gate,
        sharing: Sharing,
        seed: str,
        *,
        shares: bool,
        pause_s: float,
    ) -> None:
        self.tenant = tenant
        self.last_write = 0.0
        """When the last acknowledged change was asked for."""
        self._name, self._others = name, [other for other in tenants if other != tenant]
        self._ask, self._history, self._gate, self._sharing = connection.ask, history, gate, sharing
        self._dice, self._pause_s = Random(seed), pause_s
        self._mine: list[Memory] = []
        self._connection = connection
        self.searches_find = True
        """False while an index may be damaged: searches may then miss something, and still show nothing wrong."""
        self._operations: dict[Callable[[], None], int] = {
            self._add: 30,
            self._update: 12,
            self._delete: 6,
            self._restore: 2,
            self._erase: 4,
            self._feedback: 3,
            self._search: 22,
            self._read: 8,
            self._list: 2,
            self._look_at_others: 8,
            **({self._share: 4} if shares else {}),
        }
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while self._gate.enter():
            try:
                self._mine = [memory for memory in self._mine if memory.doubtful or memory.state.kind in _ALIVE]
                crowded = len(self._here()) > _MOST_HERE
                [operation] = self._dice.choices(list(self._operations), list(self._operations.values()))
                (self._erase if crowded and self._dice.random() < 0.5 else operation)()
            except Exception as error:
                self._history.violated(Fault.STUCK, f"client {self._name} failed: {error!r}")
                raise
            finally:
                self._gate.leave()
            time.sleep(self._dice.expovariate(1 / self._pause_s))

    # Changes

    def _change(
        self,
        what: str,
        memories: Sequence[Memory],
        method: str,
        path: str,
        body: Any,
        *maybe: State,
        key: str | None = None,
    ) -> Answer | None:
        """Ask for a change; return the answer if it was made. A repeat with a key has no second effect."""
        began = time.monotonic()
        while True:
            answer = self._ask(method, path, body, key=key)
            self._history.note(memories, f"{what} {body} key={key}: {answer.problem or answer.status}")
            if answer.ok:
                self.last_write = began
                self._history.count(what)
                return answer
            self._history.failed(f"{what}: {answer.problem}")
            if answer.status == 500:
                self._history.violated(Fault.BROKEN, f"{what}: internal error: {answer.body}", memories)
            if key is None or answer.status == 409 or self._gate.closing:
                break
            if 400 <= answer.status < 500 and answer.status != 429:
                break
            time.sleep(_AGAIN_S)
        if not answer.refused or key is not None:
            self._history.doubt(memories, *maybe)
        elif 400 <= answer.status < 500:
            self._history.violated(Fault.BROKEN, f"{what} was refused: {answer.problem}: {answer.body}", memories)
        return None

    def _add(self) -> None:
        memories = self._history.new(self.tenant, self._name, self._dice.randint(1, 3))
        key = memories[0].word if self._dice.random() < 0.6 else None
        body = {"messages": [{"role": "user", "content": memory.text(0)} for memory in memories]}
        if self._dice.random() < 0.7:
            body["conversation"] = f"talk {self._dice.randrange(4)}"  # type: ignore[assignment]
        if self._dice.random() < 0.2:
            body["mode"] = "fine"  # type: ignore[assignment]
        self._mine += memories
        answer = self._change("add", memories, "POST", "/api/v1/memories", body, State(Kind.HERE), key=key)
        if answer is not None:
            ids = answer.body["item_ids"]
            if len(ids) != len(memories):
                self._history.violated(Fault.BROKEN, f"an add of {len(memories)} answers {ids}", memories)
            for memory, id_ in zip(memories, ids, strict=False):
                memory.id = id_
            self._history.done(memories, Kind.HERE)

    def _update(self) -> None:
        for memory in self._pick(self._here(), 1):
            revision, memory.revisions = memory.revisions, memory.revisions + 1
            now = State(Kind.HERE, revision)
            if self._change("update", [memory], "PATCH", _at(memory), {"memory": memory.text(revision)}, now):
                memory.states, memory.edited = {now}, False

    def _delete(self) -> None:
        some = self._together(self._pick(self._here(), self._dice.randint(1, 2)))
        if some:
            ids = {"item_ids": [memory.id for memory in some]}
            gone = [State(Kind.DELETED, memory.state.revision) for memory in some]
            if self._change("delete", some, "POST", "/api/v1/memories/delete", ids):
                self._history.done(some, Kind.DELETED)
            for memory, state in zip(some, gone, strict=True):
                if memory.doubtful:
                    memory.states.add(state)

    def _restore(self) -> None:
        deleted = [memory for memory in self._sure() if memory.state.kind is Kind.DELETED and not memory.partners]
        for memory in self._pick(deleted, 1):
            memory.gone_at = None
            here = State(Kind.HERE, memory.state.revision)
            if self._change("restore", [memory], "POST", f"{_at(memory)}/rollback", {}, here):
                self._history.done([memory], Kind.HERE)
            elif not memory.doubtful:
                memory.gone_at = time.monotonic()

    def _erase(self) -> None:
        some = self._together(self._pick(self._sure(), self._dice.randint(1, 5)))
        if some:
            ids = {"item_ids": [memory.id for memory in some], "wait": self._dice.random() < 0.7}
            if self._change("erase", some, "POST", "/api/v1/memories/erase", ids, ERASED):
                self._history.done(some, Kind.ERASED)

    def _feedback(self) -> None:
        """Correct a memory in words; the correction is a memory of its own, and may edit or replace the other."""
        for old in self._pick(self._here(), 1):
            [new] = self._history.new(self.tenant, self._name, 1)
            text = f"Please bear {new.word} in mind."
            key = new.word if self._dice.random() < 0.5 else None
            old.edited = new.edited = True  # its text is none of `Memory.text`
            old.partners.append(new)
            new.partners.append(old)
            self._mine.append(new)
            answer = self._change(
                "feedback",
                [new],
                "POST",
                "/api/v1/feedback",
                {"text": text, "item_ids": [old.id]},
                State(Kind.HERE),
                key=key,
            )
            if answer is not None:
                new.id = answer.body["item_id"]
                self._history.done([new], Kind.HERE)
                self._history.note([old], f"feedback {text!r}: {answer.body['outcome']}")

    def _share(self) -> None:
        other = self._dice.choice(self._others)
        pair, path = (self.tenant, other), f"/api/v1/cubes/{self.tenant}/grants/{other}"
        wanted = self._dice.random() < 0.5
        before, _ = self._sharing.look(pair)
        if before is None:  # a change of it may be under way still, and come last
            return
        self._sharing.change(pair, None)
        answer = self._ask(*(("PUT", path, {"role": "reader"}) if wanted else ("DELETE", path)))
        if answer.ok:
            self._history.count("share" if wanted else "unshare")
            self._sharing.change(pair, wanted)
        else:
            self._history.failed(f"share: {answer.problem}")
            self._sharing.change(pair, before if answer.refused else None)

    # Looks

    def _look(self, what: str, method: str, path: str, body: Any = None, *, expected: bool = False) -> Answer:
        answer = self._ask(method, path, body)
        if answer.ok or (expected and answer.status == 404):
            self._history.count(what)
        else:
            self._history.failed(f"{what}: {answer.problem}")
            if answer.status == 500:
                self._history.violated(Fault.BROKEN, f"{what}: internal error: {answer.body}")
        return answer

    def _search(self) -> None:
        began, wanted = time.monotonic(), self._pick(self._here(), 1)
        word = wanted[0].word if wanted else f"zq{self._dice.choice(self._others)}"
        # The word alone: with others, indexed memories of the same words may come before one that still waits.
        answer = self._look("search", "POST", "/api/v1/search", {"query": word, "top_k": 20})
        if not answer.ok:
            return
        items = [hit["item"] for hit in answer.body["hits"]]
        self._history.check_seen(items, [self.tenant], began, f"a search of {self.tenant}")
        if answer.body["missing_arms"]:
            self._history.count("search without an arm")
            return
        for memory in wanted:
            found = [item["memory"] for item in items if item["id"] == memory.id]
            if memory.edited or not self.searches_find:
                continue
            if not found:
                self._history.violated(Fault.LOST, f"a search of {self.tenant} does not find {word}", [memory])
            elif found != [memory.text(memory.state.revision)]:
                self._history.violated(Fault.LOST, f"a search of {self.tenant} finds {found}", [memory])

    def _read(self) -> None:
        for memory in self._pick(self._sure(), 1):
            answer = self._look("get", "GET", _at(memory), expected=True)
            if memory.state.kind is Kind.DELETED:
                if answer.ok:
                    self._history.violated(Fault.RESURRECTED, f"a get shows {answer.body['memory']!r}", [memory])
            elif answer.status == 404:
                self._history.violated(Fault.LOST, f"a get does not find {memory.word}", [memory])
            elif answer.ok and not memory.edited and answer.body["memory"] != memory.text(memory.state.revision):
                self._history.violated(Fault.LOST, f"a get shows {answer.body['memory']!r}", [memory])

    def _list(self) -> None:
        began = time.monotonic()
        answer = self._look("list", "GET", "/api/v1/memories?sort=-created_at&limit=50")
        if answer.ok:
            self._history.check_seen(answer.body, [self.tenant], began, f"a list of {self.tenant}")

    def _look_at_others(self) -> None:
        """Search another tenant's cube, which answers only while it is shared."""
        other = self._dice.choice(self._others)
        (before, version), began = self._sharing.look((other, self.tenant)), time.monotonic()
        body = {"query": "Where is the parcel?", "cubes": [other, self.tenant], "top_k": 20}
        answer = self._look("search of another's cube", "POST", "/api/v1/search", body, expected=before is not True)
        if self._sharing.look((other, self.tenant))[1] != version:
            return
        readable = [self.tenant] if before is False else [self.tenant, other]
        if answer.ok:
            items = [hit["item"] for hit in answer.body["hits"]]
            self._history.check_seen(items, readable, began, f"a search of {self.tenant} in {other}'s cube")
        elif before is True and answer.status in (403, 404):
            self._history.violated(Fault.BROKEN, f"{self.tenant} may not read {other}'s cube, which is shared")

    # Memories

    def _together(self, memories: Sequence[Memory]) -> list[Memory]:
        """Add the partners of memories; leave out those of which one has another state, or a doubtful one."""
        found: dict[str, Memory] = {}
        for memory in memories:
            group, left = {memory.word: memory}, [memory]
            while left:
                for partner in left.pop().partners:
                    if partner.word not in group:
                        group[partner.word] = partner
                        left.append(partner)
            alive = {word: each for word, each in group.items() if each.doubtful or each.state not in (ABSENT, ERASED)}
            if not any(each.doubtful or each.state.kind is not memory.state.kind for each in alive.values()):
                found |= alive
        return list(found.values())

    def _sure(self) -> list[Memory]:
        return [memory for memory in self._mine if not memory.doubtful]

    def _here(self) -> list[Memory]:
        return [memory for memory in self._sure() if memory.state.kind is Kind.HERE]

    def _pick(self, memories: Sequence[Memory], most: int) -> list[Memory]:
        return self._dice.sample(memories, min(most, len(memories)))


_ALIVE: Collection[Kind] = (Kind.HERE, Kind.DELETED)


def _at(memory: Memory) -> str:
    return f"/api/v1/memories/{memory.id}"
