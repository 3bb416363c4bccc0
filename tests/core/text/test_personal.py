"""Personal data of known form is found where asked for; years, prices and ids stay."""

from __future__ import annotations

import pytest

from memos.core.text.redaction import mask

PERSONAL = (
    ("e-mail", "a.b+c@example.co.uk"), ("e-mail", "ann@例子.中国"), ("e-mail", "o'neil@example.com"),
    ("phone number", "+49 30 1234567"), ("phone number", "+49 (0)30 123456"), ("phone number", "0049 30 123456"),
    ("phone number", "+14155552671"), ("phone number", "(415) 555-2671"), ("phone number", "415-555-2671"),
    ("phone number", "1-800-555-0199"), ("phone number", "020 7946 0958"), ("phone number", "06 12 34 56 78"),
    ("phone number", "0612345678"), ("phone number", "01711234567"), ("phone number", "0171/1234567"),
    ("phone number", "(030) 123456"), ("phone number", "13812345678"), ("phone number", "138 1234 5678"),
    ("phone number", "+86 138 1234 5678"), ("phone number", "010-62345678"), ("phone number", "98765 43210"),
    ("phone number", "(11) 91234-5678"), ("phone number", "612 34 56 78"),
    ("card number", "4111 1111 1111 1111"), ("card number", "4111-1111-1111-1111"), ("card number", "378282246310005"),
    ("card number", "3782 822463 10005"), ("card number", "5555555555554444"),
    ("iban", "DE89 3704 0044 0532 0130 00"), ("iban", "GB82WEST12345698765432"),
    ("iban", "fr1420041010050500013m02606"),
    ("social security number", "123-45-6789"),
    ("identity number", "11010519491231002X"),
)  # fmt: skip

KEPT = (
    "in 2023-05-08 10:15 we met", "08.05.2023", "08.05.2023 1015", "version 1.2.3.4 at 192.168.100.200",
    "costs 1,234,567.89 EUR or 1 234 567 EUR", "order 1234567890 and 0000123456789", "from 2019-2020",
    "ticket 12345678", "ISBN 978-3-16-148410-0", "550e8400-e29b-41d4-a716-446655440000", "12345678901234567890",
    "4111 1111 1111 1112", "110105194912310021", "GB82WEST12345698765433", "rooms 101 202 303", "3.14159265358979",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", "1609459200 and 1609459200000", "2023-01-02 10:00:00.123456+0200",
    "lat 52.520008, lon 13.404954", "@ann, meet me @ 5 p.m.", "000-12-3456 and 666-12-3456", "a@b",
    "0000 0000 0000 0000", "¥13812345678", "13812345678元", "13800000000 RMB", "0171 100 200 EUR", "invoice 0171/2024",
    "01 05 2024", "git@github.com:org/repo.git", "+1000000000",
)  # fmt: skip


@pytest.mark.parametrize(("kind", "data"), PERSONAL)
def test_personal_data_is_masked_whole(kind: str, data: str) -> None:
    for before, after in (("", ""), ("reach me at ", "."), ("(", ")"), ("号码：", "。"), ("x: ", ", or later")):
        masked, counts = mask(f"{before}{data}{after}", personal=True)
        assert masked == f"{before}[masked: {kind}]{after}"
        assert counts == {kind: 1}


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert mask(text, personal=True) == (text, {})


@pytest.mark.parametrize(("kind", "data"), PERSONAL)
def test_without_being_asked_nothing_is_masked(kind: str, data: str) -> None:
    assert mask(f"{kind}: {data}") == (f"{kind}: {data}", {})


def test_numbers_of_both_kinds_are_told_apart() -> None:
    text = "IBAN DE89 3704 0044 0532 0130 00 BIC COBADEFF, card 4111 1111 1111 1111, call 13812345678 or ann@x.org"
    masked, counts = mask(text, personal=True)
    told = (
        "IBAN [masked: iban] BIC COBADEFF, card [masked: card number], call [masked: phone number] or [masked: e-mail]"
    )
    assert masked == told
    assert counts == {"iban": 1, "card number": 1, "phone number": 1, "e-mail": 1}
