"""Cutting Markdown: the passages in order are the whole text, each fits, and structure is kept where it fits."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.ports import DocumentPages, Page
from memos.reader.documents import PROSE_TOKENS, WHOLE_TOKENS, Mark, Passage, passages, read
from tests.fakes import WordEmbedder

WORDS = WordEmbedder().split


@pytest.fixture(scope="module")
def minilm() -> MiniLmEmbedder:
    return MiniLmEmbedder()


def cut(text: str, *marks: Mark, structured: bool = True) -> list[tuple[str, tuple[str, ...], int | None]]:
    found = passages(text, WORDS, marks, structured=structured)
    assert "".join(text[one.start : one.end] for one in found) == text
    return [(text[one.start : one.end], one.path, one.page) for one in found]


def test_headings_become_the_path_and_go_with_what_follows() -> None:
    text = "intro\n\n# Pumps #\n\n## Oil\nUse little.\n### Kinds\n5W\n\n## Water\nPlenty.\n# Valves\nend"
    assert cut(text) == [
        ("intro\n\n", (), None),
        ("# Pumps #\n\n## Oil\nUse little.\n", ("Pumps", "Oil"), None),
        ("### Kinds\n5W\n\n", ("Pumps", "Oil", "Kinds"), None),
        ("## Water\nPlenty.\n", ("Pumps", "Water"), None),
        ("# Valves\nend", ("Valves",), None),
    ]


def test_underlined_headings_and_what_only_looks_like_one() -> None:
    text = "Title\n=====\ntext\n\nPart\n----\nmore\n\n#5 is no heading\n\n```sh\n# nor this\n```\n"
    assert [path for _, path, _ in cut(text)] == [("Title",), ("Title", "Part")]
    assert cut("# a\nb\n# c\nd", structured=False) == [("# a\nb\n# c\nd", (), None)]


def test_code_and_tables_stay_whole_up_to_their_bound() -> None:
    code = "```\n" + "\n\n".join(f"line {number} of code" for number in range(100)) + "\n```\n"
    table = "| name | price |\n| --- | --- |\n" + "".join(f"| thing {n} | {n} |\n" for n in range(100))
    text = f"# A\nbefore\n\n{code}\nbetween\n\n{table}"
    found = [passage for passage, _, _ in cut(text)]
    assert any(code in passage for passage in found)
    assert any(table in passage for passage in found)


def test_a_large_table_is_cut_between_rows_and_keeps_its_header() -> None:
    text = "| name | price |\n| --- | --- |\n" + "".join(f"| thing {n} | {n} |\n" for n in range(1000))
    found = passages(text, WORDS)
    assert len(found) > 3
    assert [one.header for one in found] == [None, *["| name | price |"] * (len(found) - 1)]
    for one in found:
        assert text[one.start] == "|"
        assert text[: one.end].endswith("|\n")


def test_a_page_ends_a_passage_and_the_outline_is_the_path() -> None:
    text = "one two\n\nthree"
    assert cut(text, Mark(0, 1, ("Intro",)), Mark(9, 2, ("Intro", "More")), structured=False) == [
        ("one two\n\n", ("Intro",), 1),
        ("three", ("Intro", "More"), 2),
    ]


def test_pages_without_text_leave_nothing_but_their_number() -> None:
    document = read(
        DocumentPages("pdf", "application/pdf", (Page(" ", 1), Page("a\n", 2), Page("", 3), Page("b", 4))), WORDS
    )
    assert document.markdown == "a\n\nb"
    assert [one.page for one in document.passages] == [2, 4]
    assert (document.pages, document.blank_pages) == (4, 2)


def test_one_long_line_is_cut() -> None:
    for text in ("word " * 5000, "x" * 50_000, "# " + "heading " * 1000 + "\ntext", "| " + "cell " * 5000 + "|\n"):
        found = passages(text, WORDS)
        assert "".join(text[one.start : one.end] for one in found) == text


@pytest.mark.parametrize("sign", ["🎉", "👩‍👩‍👧", "\u2003", "x " + " " * 480, "\ue000"])
@pytest.mark.parametrize("before", ["", "| ", "```\n"])
def test_what_has_few_tokens_is_bounded_in_characters(minilm: MiniLmEmbedder, sign: str, before: str) -> None:
    page = Page(before + "word " + sign * (60_000 // len(sign)) + " end")
    document = read(DocumentPages("markdown", "text/markdown", (page,)), minilm.split)
    pieces = [document.markdown[one.start : one.end] for one in document.passages]
    assert "".join(pieces) == document.markdown
    assert max(map(len, pieces)) <= 16 * (WHOLE_TOKENS if before else PROSE_TOKENS)
    assert all(piece.strip() for piece in pieces)
    assert document.markdown.endswith("end")


ODD = [
    "word",
    "other words here",
    "漢字かな交じり文",
    "한국어",
    "é́́",
    "🎉",
    "a" * 130,
    "1,234.5",
    "\u200b",
    "x_y-z",
    "\t",
]
LINES = st.one_of(
    st.lists(st.sampled_from(ODD), max_size=60).map(" ".join),
    st.sampled_from(
        ["", "", "# One", "## Two", "#### Four", "======", "----", "```", "~~~~", "- item", "> said", "| a | b |",
         "| --- | --- |", "    code", "***", "<!-- x -->", "#", "|"]
    ),
    st.text(max_size=80).map(lambda text: text.replace("\n", " ")),
)  # fmt: skip
TEXTS = st.lists(LINES, max_size=60).map("\n".join).filter(lambda text: bool(text.strip()))


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(TEXTS, st.lists(st.integers(0, 4000), max_size=4), st.booleans())
def test_any_text_is_cut_into_fitting_passages_that_are_all_of_it(
    minilm: MiniLmEmbedder, text: str, offsets: list[int], structured: bool
) -> None:
    text = text.encode("utf-8", "replace").decode()
    marks = [Mark(0, 1), *(Mark(offset, place + 2) for place, offset in enumerate(sorted({*offsets} - {0})))]
    found = passages(text, minilm.split, marks, structured=structured)
    assert [found[0].start, *(one.end for one in found)] == [*(one.start for one in found), len(text)]
    for one in found:
        passage = text[one.start : one.end]
        assert passage.strip()
        limit = WHOLE_TOKENS if _has_structure(passage) and structured else PROSE_TOKENS
        assert len(minilm.split(passage, limit)) <= 1
        assert len(one.path) <= 6


def _has_structure(passage: str) -> bool:
    return any(line.lstrip().startswith(("|", "```", "~~~")) for line in passage.splitlines())


def test_a_passage_says_where_it_is() -> None:
    assert passages("# A\nb", WORDS) == [Passage(0, 5, ("A",), None)]
