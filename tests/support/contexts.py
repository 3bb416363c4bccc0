"""The kernel's context over a ledger with no indexes around it."""

from __future__ import annotations

from memos import Settings
from memos.core.clock import Clock
from memos.core.identities import KeyLimits
from memos.kernel.access.guard import AccessControl
from memos.kernel.access.quotas import Quotas
from memos.kernel.context import Context, Lifecycle, Scopes
from memos.kernel.idempotency import Idempotency
from memos.memcube.ledger.engine import Ledger
from memos.memcube.signing import SigningKey
from tests.fakes import WordEmbedder


def context_of(ledger: Ledger, clock: Clock) -> Context:
    """Return a context for services that need a ledger alone; nothing waits for an index."""
    settings = Settings()
    lifecycle, access = Lifecycle(settings, None), AccessControl(ledger)
    return Context(
        settings=settings,
        clock=clock,
        ledger=ledger,
        key=SigningKey(bytes(32)),
        scopes=Scopes(ledger, access, WordEmbedder().fingerprint, settings, lifecycle, clock),
        access=access,
        quotas=Quotas(ledger, clock, KeyLimits()),
        indexes=None,  # type: ignore[arg-type]
        idempotency=Idempotency(ledger, clock, lifecycle.check_open),
        lifecycle=lifecycle,
    )
