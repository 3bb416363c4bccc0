"""Requests that come twice, the same on both databases: known for a minute, by their caller and body, also at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from memos.errors import NotFound
from memos.kernel.idempotency import Progress, Submissions
from memos.memcube.ledger import idempotency as submissions
from memos.memcube.ledger import reading
from memos.memcube.ledger.engine import Ledger, sqlite_url
from tests.fakes import FixedClock
from tests.support.contexts import context_of
from tests.support.ledgers import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    on_file = request.param == "sqlite"
    url = sqlite_url(tmp_path / "ledger.db") if on_file else request.getfixturevalue("postgres_server").url()
    ledger = Ledger.open(url)
    store = Store(ledger, FixedClock())
    store.make("default")
    yield store
    ledger.close()


@pytest.fixture
def sent(store: Store) -> Submissions:
    return Submissions(context_of(store.ledger, store.clock))


def test_the_same_at_once_is_one_and_its_first_answer_stands(sent: Submissions) -> None:
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: sent.take("ana", "a body", ["default"]), range(16)))
    assert len({one.id for one in taken}) == 1
    assert [one.fresh for one in taken].count(True) == 1
    first = sent.answered(taken[0], {"items": ["one"]})
    assert sent.answered(taken[1], {"items": ["two"]}) == first
    assert sent.take("ana", "a body", ["default"]).answer == {"items": ["one"]}


def test_another_caller_body_or_minute_is_another(store: Store, sent: Submissions) -> None:
    first = sent.take("ana", "a body", ["default"]).id
    assert sent.take("ben", "a body", ["default"]).id != first
    assert sent.take("ana", "another body", ["default"]).id != first
    store.clock.advance(timedelta(seconds=40))  # type: ignore[attr-defined]
    assert sent.take("ana", "a body", ["default"]).id == first
    store.clock.advance(timedelta(seconds=20))  # type: ignore[attr-defined]
    assert sent.take("ana", "a body", ["default"]).id != first
    assert sent.get(first, "ana").id == first
    with pytest.raises(NotFound):
        sent.get(first, "ben")
    assert sent.get(first, None).id == first
    store.clock.advance(timedelta(days=8))  # type: ignore[attr-defined]
    sent.take("ana", "much later", [])
    with pytest.raises(NotFound):
        sent.get(first, "ana")


def test_what_came_to_nothing_or_is_erased_is_not_known_again(store: Store, sent: Submissions) -> None:
    first = sent.take("ana", "a body", ["default", "other"])
    sent.withdraw(first)
    second = sent.take("ana", "a body", ["default", "other"])
    assert second.fresh
    assert second.id != first.id
    kept = sent.take("ana", "elsewhere", ["nowhere"])
    store.erase(store.add("said").item_ids[0])
    assert sent.take("ana", "a body", ["default", "other"]).id != second.id
    assert sent.take("ana", "elsewhere", ["nowhere"]).id == kept.id


def test_an_answer_may_end_what_is_known(sent: Submissions) -> None:
    first = sent.take("ana", "a question", [])
    sent.answered(first, {"items": ["answer"]}, known=False)
    assert sent.get(first.id, "ana").answer == {"items": ["answer"]}
    assert sent.take("ana", "a question", []).fresh


def test_progress_is_that_of_the_fine_reading(store: Store, sent: Submissions) -> None:
    ids = [store.add("said", conversation="c").item_ids[0], store.add("alone").item_ids[0]]
    taken = sent.take("ana", "a body", ["default"])
    assert sent.progress(taken) is Progress.RUNNING
    done = sent.answered(taken, {"items": ids})
    assert sent.progress(done) is Progress.COMPLETED  # nothing is to be read
    with store.ledger.write() as connection:
        reading.queue(connection, "default", ids, store.clock.now())
    assert sent.progress(done) is Progress.RUNNING
    with store.ledger.write() as connection:
        connection.exec_driver_sql("UPDATE tasks SET state = 'dead'")
    assert sent.progress(done) is Progress.FAILED
    with store.ledger.write() as connection:
        reading.mark(connection, ids)
    assert sent.progress(done) is Progress.COMPLETED


def test_a_digest_says_nothing_without_the_ledgers_secret(store: Store, sent: Submissions) -> None:
    sent.take("ana", "a body", [])
    with store.ledger.read() as connection:
        [row] = connection.execute(submissions.submissions.select()).all()
        secret = connection.exec_driver_sql("SELECT value FROM meta WHERE key = 'submissions'").scalar_one()
    assert len(bytes.fromhex(secret)) == 32
    assert "a body" not in str(row)
