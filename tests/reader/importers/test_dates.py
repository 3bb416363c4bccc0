"""Dates of exports: every documented form, and what is refused because it means two days or none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from memos.core.types import Json
from memos.errors import InvalidInput
from memos.reader.importers.base import read_date

AT = datetime(2023, 5, 20, 2, 21)  # noqa: DTZ001 - naive: the cube's zone is not known here


@pytest.mark.parametrize(("written", "moment"), [
    ("2023-05-20T02:21:00Z", AT.replace(tzinfo=UTC)),
    ("2023-05-20T02:21:00+02:00", AT.replace(tzinfo=timezone(timedelta(hours=2)))),
    (" 2023-05-20 02:21 ", AT),
    ("2023-05-20T02:21:00.250000Z", AT.replace(tzinfo=UTC, microsecond=250_000)),
    ("2023-05-20", AT.replace(hour=0, minute=0)),
    ("20230520", AT.replace(hour=0, minute=0)),
    (1684549260, AT.replace(tzinfo=UTC)),
    (1684549260.5, AT.replace(tzinfo=UTC, microsecond=500_000)),
    (1684549260000, AT.replace(tzinfo=UTC)),
    ("1684549260", AT.replace(tzinfo=UTC)),
    ("1684549260000", AT.replace(tzinfo=UTC)),
    ("1684549260.0", AT.replace(tzinfo=UTC)),
    ("2023/05/20 (Sat) 02:21", AT),
    ("2023/5/20", AT.replace(hour=0, minute=0)),
    ("2:21 am on 20 May, 2023", AT),
    ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56)),  # noqa: DTZ001
    ("12:05 am on 1 January, 2024", datetime(2024, 1, 1, 0, 5)),  # noqa: DTZ001
    ("12:05 pm on 1 January, 2024", datetime(2024, 1, 1, 12, 5)),  # noqa: DTZ001
    ("May 20, 2023 2:21 AM", AT),
    ("May 20, 2023, 2:21 a.m.", AT),
    ("May 20, 2023 2:21 PM", AT.replace(hour=14)),
    ("Saturday, May 20th, 2023 at 02:21", AT),
    ("20 May 2023", AT.replace(hour=0, minute=0)),
    ("20-May-2023 02:21", AT),
    ("Sept 3, 2023", datetime(2023, 9, 3)),  # noqa: DTZ001
    ("Sat, 20 May 2023 02:21:00 +0000", AT.replace(tzinfo=UTC)),
    ("Sat, 20 May 2023 02:21:00 GMT", AT.replace(tzinfo=UTC)),
    ("20 May 2023 02:21:00 -0430", AT.replace(tzinfo=timezone(-timedelta(hours=4, minutes=30)))),
])  # fmt: skip
def test_every_documented_form_is_read(written: Json, moment: datetime) -> None:
    read = read_date(written)
    assert (read, read.utcoffset()) == (moment, moment.utcoffset())


@pytest.mark.parametrize("written", ["03/04/2023", "3/4/23", "25.12.2023 10:00", "03-04-2023", "04/05/2023, 9:15 PM"])
def test_a_date_with_the_day_or_the_month_first_is_refused(written: str) -> None:
    with pytest.raises(InvalidInput, match=r"ambiguous.*ISO 8601"):
        read_date(written)


@pytest.mark.parametrize("written", [
    "", "soon", "May 2023", "31 February 2023", "20 Mayor 2023", "20 Ma 2023", "13:00 pm on 8 May, 2023", "2023/13/01",
    "8 May, 2023 or so", "8 May 2023 10:00 and 11:00", "25:61 on 8 May 2023", "12345", "1" * 20, "9" * 5000,
    float("nan"), float("inf"), 1e300, True, [], {"at": 1},
])  # fmt: skip
def test_what_is_no_date_is_refused_in_one_sentence(written: Json) -> None:
    with pytest.raises(InvalidInput, match="is not a time; use ISO 8601") as caught:
        read_date(written)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250
