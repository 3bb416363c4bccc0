"""Secrets of known formats are masked whole, nothing else is, twice is as once, and no text makes it slow."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memos.core.text.redaction import marks, mask
from memos.core.text.secret_patterns import FORMATS
from tests.core.text.secret_samples import HARMLESS, JWT, PEM, SECRETS

GITHUB = next(secret for kind, _, secret in SECRETS if kind == "github token")
AROUND = ("", " ", "\n", '"', "'", "(", "=", ":", ",", "`", "<b>", "：", "。", "/")


@pytest.mark.parametrize(("kind", "text", "secret"), SECRETS, ids=[f"{n}-{s[0]}" for n, s in enumerate(SECRETS)])
def test_each_format_is_masked_whole_and_nothing_around_it(kind: str, text: str, secret: str) -> None:
    masked, counts = mask(text)
    assert masked == text.replace(secret, f"[masked: {kind}]")
    assert counts == {kind: 1}


def test_every_format_has_a_sample() -> None:
    assert {form.kind for form in FORMATS} <= {kind for kind, _, _ in SECRETS}


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == (text, {})


@pytest.mark.parametrize(("kind", "text", "secret"), SECRETS, ids=[f"{n}-{s[0]}" for n, s in enumerate(SECRETS)])
def test_masked_text_is_masked_no_further(kind: str, text: str, secret: str) -> None:
    once, _ = mask(text)
    assert mask(once) == (once, {})
    assert marks(once) == {kind: 1}


PIECES = st.sampled_from(
    [*AROUND, *(secret for _, _, secret in SECRETS), *(text for _, text, _ in SECRETS), "Bearer ", "://a:", "@b", "bot"]
)


@given(st.lists(PIECES | st.text(max_size=5), max_size=8))
@settings(max_examples=300, deadline=None)
@example(["AKIA0123456789ABCDEF", GITHUB, "@b"])
def test_no_neighbour_makes_a_second_pass_find_more(pieces: list[str]) -> None:
    once, _ = mask("".join(pieces), personal=True)
    assert mask(once, personal=True) == (once, {})


@pytest.mark.parametrize("around", AROUND)
def test_what_stands_around_a_token_does_not_hide_it(around: str) -> None:
    assert mask(f"{around}{GITHUB}{around}")[0] == f"{around}[masked: github token]{around}"


@pytest.mark.parametrize(
    "sign", ["\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u202e", "\u034f", "\ufe0f", "\u3164", "\U000e0101"]
)
def test_invisible_characters_hide_nothing(sign: str) -> None:
    hidden = sign.join(GITHUB)
    assert mask(f"key {hidden}, 谢谢 {sign}") == (f"key [masked: github token], 谢谢 {sign}", {"github token": 1})


def test_the_backslashes_of_markdown_hide_nothing() -> None:
    token = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC2dF4hJ6"
    assert mask(f"It is {token.replace('_', chr(92) + '_')} in Markdown.") == (
        "It is [masked: github token] in Markdown.",
        {"github token": 1},
    )


def test_full_width_letters_hide_nothing() -> None:
    wide = "".join(chr(ord(sign) + 0xFEE0) for sign in GITHUB)
    assert mask(f"密钥{wide}。") == ("密钥[masked: github token]。", {"github token": 1})


@pytest.mark.parametrize("escaped", [False, True])
def test_a_private_key_is_masked_whole_also_in_json_and_quotes(escaped: bool) -> None:
    text = json.dumps({"private_key": PEM + "\n", "id": 7}) if escaped else "> " + PEM.replace("\n", "\n> ")
    masked, counts = mask(text)
    assert counts == {"private key": 1}
    assert not any(line in masked for line in PEM.splitlines())
    if escaped:
        assert json.loads(masked) == {"private_key": "[masked: private key]\n", "id": 7}


@pytest.mark.parametrize("cut", [60, 200, 333, len(PEM) - 40, len(PEM) - 32, len(PEM) - 27, len(PEM) - 5, len(PEM) - 1])
def test_a_key_that_is_cut_off_is_masked_as_far_as_it_goes(cut: int) -> None:
    for text in (PEM[:cut], f"look: {PEM[:cut]}"):
        masked, counts = mask(text)
        assert counts == {"private key": 1}
        assert masked.removeprefix("look: ") == "[masked: private key]"


@pytest.mark.parametrize("cut", [40, 100, 333])
def test_a_key_whose_beginning_is_missing_is_masked(cut: int) -> None:
    masked, counts = mask(f"{PEM[cut:]} and more")
    assert counts == {"private key": 1}
    assert masked == "[masked: private key] and more"


def test_what_follows_a_key_that_is_cut_off_stays() -> None:
    masked, _ = mask(f"{PEM[:300]}\n\nI live in Paris, and my sister in Lyon.")
    assert masked.endswith("I live in Paris, and my sister in Lyon.")
    assert PEM[100:130] not in masked


def test_json_stays_json_whatever_is_masked_in_it() -> None:
    value = {"url": "https://a:pw@h/x", "n": [1.50, GITHUB, {"k\n": JWT}], "text": "日本😀", "big": 1}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=2)):
        masked, counts = mask(text)
        told = json.loads(masked)
        assert counts == {"password": 1, "github token": 1, "json web token": 1}
        assert told["n"] == [1.5, "[masked: github token]", {"k\n": "[masked: json web token]"}]
        assert told["text"] == value["text"]
        assert "1.5" in masked


def test_escapes_hide_nothing_in_json() -> None:
    hidden = "".join(f"\\u{ord(sign):04x}" for sign in GITHUB)
    masked, counts = mask(f'{{"a": "{hidden}", "b": "https:\\/\\/u:pw\\u0031@h", "c": "\\ud800"}}')
    assert json.loads(masked) == {"a": "[masked: github token]", "b": "https://u:[masked: password]@h", "c": "\ud800"}
    assert counts == {"github token": 1, "password": 1}


def test_escapes_hide_nothing_in_json_within_json_or_in_a_text() -> None:
    hidden = "".join(f"\\u{ord(sign):04x}" for sign in GITHUB)
    inner = f'{{"a": "{hidden}", "b": "https:\\/\\/u:pw@h"}}'
    masked, counts = mask(json.dumps({"arguments": inner}))
    told = json.loads(json.loads(masked)["arguments"])
    assert told == {"a": "[masked: github token]", "b": "https://u:[masked: password]@h"}
    assert counts == {"github token": 1, "password": 1}
    for text in (f"Result: {inner}", f'{{"n": 1}}\n{inner}', f'"{hidden}"'):
        assert "[masked: github token]" in mask(text)[0]
        assert hidden not in mask(text)[0]


def test_two_secrets_that_overlap_are_one() -> None:
    masked, counts = mask(f"https://ann:{GITHUB}@github.com/x")
    assert masked == "https://ann:[masked: github token]@github.com/x"
    assert counts == {"github token": 1}


def test_switched_off_nothing_is_masked() -> None:
    assert mask(GITHUB, secrets=False) == (GITHUB, {})


HOSTILE = (
    "-eyJ", "eyJ.", "a.eyJ", ".eyJaaaaaaaa", "sk-", "-sk-", "://", "://a:", "://:b", "@", "a:@", "Bearer ", "bearer a",
    "authorization: bearer ", "x-api-key: ", "ghp_", "-----BEGIN PRIVATE KEY-----", "-----BEGIN A ",
    "-----END PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAA\n", "A" * 20 + "\n", "host=", "host=a;", "host=a ", "password=",
    "?", "&sig=", "aws_secret_access_key", "aws_secret_access_key=", "AKIA", "M" * 24 + ".", "1234567890:AA", "SG.",
    "{", '{"a":', "\u200b", "\uff41", "key-", "hooks.slack.com/services/", "xox", "1 ", "+1", "0", "a@a.", "a.", "a@",
    "4111 ", "DE89 3704 ", "12345678", "(0", "+1(", "Private-Lines: 9\n", "AAAA=\n", "Proc-Type: ", "\\n",
    "pscale_tkn_", "\\", "\\u00", "\\u0041", "\ufe0f",
)  # fmt: skip


def cost(text: str) -> float:
    """Return the least processor time that masking took; how it grows is compared, not how long it is."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        mask(text, personal=True)
        times.append(time.process_time() - begun)
    return max(min(times), 0.002)


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_costs_no_more_than_its_length(piece: str) -> None:
    """Eight times the text takes about eight times as long; 64 times when something looks at it again and again."""
    small, large = (piece * (length // len(piece)) for length in (20_000, 160_000))
    assert cost(large) / cost(small) < 24


def test_what_stands_right_behind_a_secret_is_seen_when_that_is_gone() -> None:
    behind = "aB38Q~np5yftIY7uq6T2bwGfcCvJAXrF6bnZ3e7d"
    masked, counts = mask(PEM + behind)
    assert behind not in masked
    assert sum(counts.values()) == 2
    assert mask(masked) == (masked, {})
