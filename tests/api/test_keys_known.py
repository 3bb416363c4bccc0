"""A key that was checked a moment ago is not read again, and never outlives what it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from memos import MemOS
from memos.api.app import create_app
from tests.fakes import SteppingClock, WordEmbedder
