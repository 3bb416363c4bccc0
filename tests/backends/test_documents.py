"""Reading documents in a child process: every kind becomes text, and what is broken or hostile harms nobody."""

from __future__ import annotations

import sys
import threading
import time

import psutil
import pytest

from memos.backends.documents import process as document_process
from memos.backends.documents.formats import Format
from memos.backends.documents.reader import ChildDocumentReader, _taken
from memos.core.ports import DocumentPages
from memos.errors import InvalidInput
from tests.support import documents as make

READER = ChildDocumentReader()


def pages(name: str, data: bytes) -> DocumentPages:
    return READER.pages(name, data, lambda: None)


def refused(name: str, data: bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        pages(name, data)
    return caught.value.reason


def test_a_pdf_keeps_its_pages_and_its_outline() -> None:
    raw = make.pdf(["Oil pump", "", "Valve\nstem"], outline={0: "Pumps", 2: "Valves"})
    found = pages("a.pdf", raw)
    assert (found.format, found.media_type) == (Format.PDF, "application/pdf")
    assert [(page.text.strip(), page.number, page.path) for page in found.pages] == [
        ("Oil pump", 1, ("Pumps",)),
        ("", 2, ("Pumps",)),
        ("Valve\nstem", 3, ("Valves",)),
    ]


@pytest.mark.parametrize(
    ("name", "data", "format_", "text"),
    [
        ("a.docx", make.docx([("Heading1", "Pumps"), ("", "Oil them."), ("Heading2", "Big")]), Format.DOCX,
         "# Pumps\n\nOil them.\n\n## Big"),
        ("a.xlsx", make.xlsx({"Prices": [["item", "price"], ["pump|2", 12.5], [None, None], ["valve", None]]}),
         Format.XLSX, "## Prices\n\n| item | price |\n| --- | --- |\n| pump\\|2 | 12.5 |\n| valve |  |"),
        ("a.html", b"<!DOCTYPE html><body><script>evil()</script><h2>Caf\xc3\xa9</h2><p>open <b>late</b></body>",
         Format.HTML, "## Café\n\nopen **late**"),
        ("a.csv", b"name;city\nAna;\"Porto\nold town\"\n", Format.CSV,
         "| name | city |\n| --- | --- |\n| Ana | Porto old town |"),
        ("a.tsv", b"a\tb,c\n1\t2\n", Format.CSV, "| a | b,c |\n| --- | --- |\n| 1 | 2 |"),
        ("a.md", b"\xef\xbb\xbf# Title\r\n\r\ntext", Format.MARKDOWN, "# Title\n\ntext"),
        ("a.txt", "naïve 漢字 \U0001f300".encode("utf-16"), Format.TEXT, "naïve 漢字 \U0001f300"),
        ("notes", "Größe: 5 cm".encode("cp1252"), Format.TEXT, "Größe: 5 cm"),
        ("BM.txt", b"BM is a short name", Format.TEXT, "BM is a short name"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 10 else "",
)  # fmt: skip
def test_each_kind_becomes_markdown(name: str, data: bytes, format_: Format, text: str) -> None:
    found = pages(name, data)
    assert found.format == format_
    assert [page.text.strip() for page in found.pages] == [text]


def test_slides_and_chapters() -> None:
    slides = pages("a.pptx", make.pptx([("Pumps", "Oil them."), ("Valves", "Turn them.")]))
    assert [(page.number, page.text) for page in slides.pages] == [
        (1, "# Pumps\nOil them."),
        (2, "# Valves\nTurn them."),
    ]
    book = pages("a.epub", make.epub([("One", "It began."), ("Two", "It ended.")]))
    [page] = book.pages
    assert page.text.index("# One") < page.text.index("It began.") < page.text.index("# Two")


def test_the_bytes_decide_and_not_the_name() -> None:
    assert pages("report.txt", make.pdf(["in a PDF"])).format == Format.PDF
    assert pages("report.pdf", b"plain words").format == Format.TEXT
    assert "cannot be read as PNG" in refused("report.pdf", b"\x89PNG\r\n\x1a\n" + bytes(50))
    assert "sound or film" in refused("report.pdf", b"RIFF\0\0\0\0WAVEfmt " + bytes(50))
    assert "zip archive" in refused("a.docx", make.zipped({"a.txt": "x"}))
    assert "old Office file" in refused("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    assert "neither text nor a document" in refused("a.md", b"\x01\x02\0\x03")
    assert "an image" not in (told := refused("a.rtf", b"{\\rtf1 x}"))
    assert told.startswith("is RTF (save it as DOCX or PDF) by its content")


def test_a_text_may_speak_of_a_pdf_and_a_pdf_may_begin_late() -> None:
    text = b"A PDF begins with %PDF-1.7, as RFC 8118 says."
    assert pages("notes.md", text).format == Format.MARKDOWN
    assert pages("notes.html", b"<html><body>" + text + b"</body></html>").format == Format.HTML
    assert pages("late.pdf", b"X-Mailer: none\r\n\r\n" + make.pdf(["after a mail's head"])).format == Format.PDF
    assert "damaged" in refused("cut.pdf", b"%PDF-1.4\nno more")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_unicode_with_a_mark_is_read_as_it_says(encoding: str) -> None:
    mark = b"" if encoding in ("utf-16", "utf-32") else "\ufeff".encode(encoding)
    [page] = pages("a.txt", mark + "Grüße".encode(encoding)).pages
    assert page.text.removeprefix("\ufeff") == "Grüße"


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.txt", "a"])
@pytest.mark.parametrize("data", [b"", b" \n\t ", bytes(10)])
def test_an_empty_file_is_named(name: str, data: bytes) -> None:
    assert refused(name, data) == "is empty"


def test_a_password_is_named() -> None:
    assert "password" in refused("a.pdf", make.pdf(["hidden words"], password="mandrake"))
    locked = bytearray(make.docx([("", "hidden words")]))
    for mark in (b"PK\x03\x04", b"PK\x01\x02"):
        place = -1
        while (place := locked.find(mark, place + 1)) >= 0:
            locked[place + (6 if mark == b"PK\x03\x04" else 8)] |= 1
    assert "password" in refused("a.docx", bytes(locked))
    assert "password" in refused("b.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"))


def test_a_zip_bomb_is_not_opened() -> None:
    assert "zip bomb" in refused("a.docx", make.bomb(32))
    many = {f"word/{number}.xml": b"" for number in range(20_001)}
    assert "zip bomb" in refused("a.docx", make.zipped({"word/document.xml": "x", **many}))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["pdf", "docx", "pptx", "xlsx", "epub"])
def test_a_file_that_was_cut_off_or_overwritten_is_refused_or_read(kind: str, share: float) -> None:
    raw = {
        "pdf": make.pdf(["words on a page"] * 3),
        "docx": make.docx([("", "words")]),
        "pptx": make.pptx([("t", "words")]),
        "xlsx": make.xlsx({"s": [["words"]]}),
        "epub": make.epub([("t", "words")]),
    }[kind]
    cut = int(len(raw) * share)
    for broken in (raw[:cut], raw[:cut] + b"\xdb garbage \xff\0" * 9 + raw[cut + 90 :]):
        try:
            assert pages(f"a.{kind}", broken).pages
        except InvalidInput as error:
            assert error.reason
            assert "words" not in error.reason


def test_xml_that_grows_when_it_is_read_is_stopped() -> None:
    lines = ['<!DOCTYPE l [<!ENTITY a0 "ha">'] + [f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)]
    parts = {"[Content_Types].xml": "<Types/>", "word/document.xml": "".join(lines) + "]><l>&a11;</l>"}
    assert "cannot be read as DOCX" in refused("a.docx", make.zipped(parts))


def test_html_nested_beyond_reason_is_read_as_it_can_be() -> None:
    [page] = pages("a.html", b"<html>" + b"<div>" * 5_000 + b"words").pages
    assert "words" in page.text


def test_too_much_text_is_refused() -> None:
    assert "characters" in refused("a.txt", b"words " * (document_process.MOST_CHARS // 6 + 10))
    assert "characters" in refused("a.csv", b"a,b\n" + b"words,words\n" * (document_process.MOST_CHARS // 10 + 10))


def test_what_no_store_can_keep_is_replaced() -> None:
    [page] = pages("a.txt", "a\rb\r\nc\fd\ud800".encode("utf-16-le", "surrogatepass").join([b"\xff\xfe", b""])).pages
    assert page.text == "a\nb\nc\nd\ufffd"


def test_a_child_that_dies_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for way, told in (
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "processor time or memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", "processor time or memory"),
        ("pass", "invalid answer"),
    ):
        monkeypatch.setattr("memos.backends.documents.reader._START", way)
        assert told in refused("a.txt", b"words")


@pytest.mark.parametrize(
    "told",
    [b"", b"[]", b"{}", b'{"pages": [1], "format": "pdf"}', b'{"pages": [], "format": "exe"}', b"[" * 100_000,
     b'{"pages": [{"text": 5}], "format": "pdf"}'],
)  # fmt: skip
def test_an_answer_of_a_child_that_was_taken_over_is_not_believed(told: bytes) -> None:
    with pytest.raises(InvalidInput, match="invalid answer"):
        _taken(told)


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("p._read = lambda *_: [{'text': 'x' * (2 << 30)}]", "1,536 MiB of memory"),
        ("p.CPU_S = 1; p._read = lambda *_: [0 for _ in iter(int, 1)]", "processor time or memory"),
        ("p._ANSWER_BYTES = 10; p.answered = lambda *_: {'text': 'x' * 1000}", "too much text"),
    ],
)
def test_a_child_takes_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch, way: str, told: str) -> None:
    begin = "import sys; sys.path.insert(0, sys.argv[1]); from memos.backends.documents import process as p; "
    monkeypatch.setattr("memos.backends.documents.reader._START", f"{begin}{way}; p.main(*map(int, sys.argv[2:]))")
    assert told in refused("a.txt", b"words")


def test_a_caller_who_stops_ends_the_child() -> None:
    class Stop(Exception):
        pass

    seen: list[int] = []
    begun = threading.Event()

    def go_on() -> None:
        seen[:] = [
            child.pid for child in psutil.Process().children() if "documents.process" in " ".join(child.cmdline())
        ]
        if seen:
            begun.set()
            raise Stop

    with pytest.raises(Stop):
        READER.pages("a.html", b"<html>" + b"<p><b>words</b></p>" * 100_000, go_on)
    assert begun.is_set()
    deadline = time.monotonic() + 10
    while any(psutil.pid_exists(pid) for pid in seen):
        assert time.monotonic() < deadline


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {"a.pdf": make.pdf(["words"]), "a.docx": make.docx([("", "words")]), "a.xlsx": make.xlsx({"s": [["w"]]})}
    for module in ("markitdown", "pypdfium2", "openpyxl", "charset_normalizer"):
        monkeypatch.setitem(sys.modules, module, None)
    for name, data in raw.items():
        told = document_process.read_file(name, data)
        assert ".[documents]" in told["reason"]
    for name in ("a.txt", "a.md", "a.csv"):
        assert document_process.read_file(name, b"words,more")["pages"]


def test_the_child_knows_no_keys_and_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOS_CHAT_MODEL__API_KEY", "sk-mandrake")
    monkeypatch.setattr(
        "memos.backends.documents.reader._START",
        "import os, sys, json; os.write(int(sys.argv[3]), json.dumps({'format': 'text', 'pages': "
        "[{'text': str(dict(os.environ)) + os.getcwd()}]}).encode())",
    )
    [page] = pages("a.txt", b"words").pages
    assert "mandrake" not in page.text
    assert page.text.endswith("/")
