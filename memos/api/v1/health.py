"""Routes of `/doctor`, `/settings` and `/slow-calls`: how the installation is, and how it is set."""

from __future__ import annotations

from collections.abc import Sequence

from memos.api.families import CurrentMemos
from memos.api.v1.common import CurrentIdentity, value_router
from memos.core.effective_settings import EffectiveSetting
from memos.core.telemetry import SlowCall
from memos.kernel.doctor import Finding
from memos.kernel.health import ModelStatus

router = value_router("health")


@router.get("/doctor")
def doctor(memos: CurrentMemos, acting: CurrentIdentity) -> list[Finding]:
    """Check what the installation needs, and say what to do; for admins. It may take seconds, and changes nothing."""
    return memos.health.doctor(actor=acting.actor)


@router.get("/settings")
def settings(memos: CurrentMemos, acting: CurrentIdentity) -> Sequence[EffectiveSetting]:
    """Return the settings in effect with where each comes from, secrets masked; for admins."""
    return memos.health.settings(actor=acting.actor)


@router.get("/models")
def models(memos: CurrentMemos, acting: CurrentIdentity) -> Sequence[ModelStatus]:
    """Return which language models are configured, and what to do where one is missing."""
    return memos.health.models(actor=acting.actor)


@router.get("/slow-calls")
def slow_calls(memos: CurrentMemos, acting: CurrentIdentity) -> Sequence[SlowCall]:
    """Return the slowest searches and adds of the last 24 hours in this process, of cubes one may read."""
    return memos.health.slow_calls(actor=acting.actor)
