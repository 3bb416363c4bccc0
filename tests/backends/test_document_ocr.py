"""Text in pictures of pages: it is read with the extra `ocr`, marked, and bounded; nothing is fetched for it."""

from __future__ import annotations

import pytest

from memos.backends.documents import process as document_ocr
from memos.backends.documents import process as document_process
from memos.backends.documents.formats import Format
from memos.backends.documents.process import in_lines
from memos.backends.documents.reader import ChildDocumentReader
from memos.core.ports import DocumentPages
from memos.errors import InvalidInput
from tests.support import documents as make

READER = ChildDocumentReader()
SEAL = "A new seal costs 12.50 EUR."
OIL = "Oil the pump every 400 hours."


def pages(name: str, data: bytes) -> DocumentPages:
    return READER.pages(name, data, lambda: None)


def refused(name: str, data: bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        pages(name, data)
    return caught.value.reason


def child(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    begin = "import os, sys; sys.path.insert(0, sys.argv[1]); from memos.backends.documents import process as p; "
    monkeypatch.setattr("memos.backends.documents.reader._START", f"{begin}{way}; p.main(*map(int, sys.argv[2:]))")


@pytest.mark.heavy
def test_pages_without_letters_are_read_as_pictures_and_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import socket; socket.getaddrinfo = socket.create_connection = None")
    scan = [make.picture([OIL, SEAL]), None, "Typed words.", make.chinese_picture()]
    found = pages("scan.pdf", make.pdf_of(scan))
    english, blank, typed, chinese = found.pages
    assert english.text.splitlines() == [OIL, SEAL]
    assert chinese.text.replace(" ", "").splitlines() == [
        "水泵每四百小时更换一次密封圈。",
        "价格为十二元，由北京的仓库发货。",
    ]
    assert (blank.text.strip(), typed.text.strip()) == ("", "Typed words.")
    assert (blank.ocr, typed.ocr) == (None, None)
    assert all(page.ocr is not None and 0.8 < page.ocr <= 1 for page in (english, chinese))
    assert found.unread == 0


@pytest.mark.heavy
def test_an_image_is_a_document_whatever_side_is_up() -> None:
    upside_down = pages("photo.txt", make.image_file([make.picture([OIL, SEAL]).rotate(180)], "JPEG"))
    assert (upside_down.format, upside_down.media_type) == (Format.JPEG, "image/jpeg")
    [page] = upside_down.pages
    assert (page.text.splitlines(), page.number) == ([OIL, SEAL], 1)
    both = pages(
        "fax.tiff", make.image_file([make.picture([OIL]), make.picture([SEAL]).rotate(90, expand=True)], "TIFF")
    )
    assert [(page.text, page.number) for page in both.pages] == [(OIL, 1), (SEAL, 2)]


@pytest.mark.heavy
def test_pictures_without_text_say_so() -> None:
    assert refused("scan.pdf", make.scanned(1)).startswith("has no text on its 1 pages, only scans or drawings; no")
    assert refused("a.png", make.image_file([make.picture([" "])], "PNG")).startswith("is an image (PNG); no text was")


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_ocr, "available", lambda: False)
    for name, data in (("a.pdf", make.scanned(2)), ("a.webp", make.image_file([make.picture([OIL])], "WEBP"))):
        assert ".[ocr]" in document_process.read_file(name, data)["reason"]
    told = document_process.read_file("a.pdf", make.pdf_of(["Typed words.", make.picture([OIL])]))
    assert ([page["text"].strip() for page in told["pages"]], told["unread"]) == (["Typed words.", ""], 1)


@pytest.mark.heavy
def test_what_is_in_letters_is_kept_when_a_picture_harms_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import signal; p.OcrEngine = lambda *_: os.kill(os.getpid(), signal.SIGSEGV)")
    found = pages("a.pdf", make.pdf_of(["Typed words.", make.picture([OIL])]))
    assert [page.text.strip() for page in found.pages] == ["Typed words.", ""]
    assert found.unread == 1
    assert "crashed" in refused("scan.pdf", make.scanned(1))
    child(monkeypatch, "p.OcrEngine = lambda *_: bytearray(1 << 40)")
    assert pages("a.pdf", make.pdf_of(["Typed words.", make.picture([OIL])])).unread == 1
    assert "2,048 MiB of memory" in refused("scan.pdf", make.scanned(1))


@pytest.mark.heavy
def test_there_is_a_bound_of_pages_and_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    two = make.pdf_of([make.picture([OIL]), make.picture([SEAL])])
    child(monkeypatch, "p.MOST_OCR_PAGES = 1")
    found = pages("a.pdf", two)
    assert ([page.text for page in found.pages], found.unread) == ([OIL, ""], 1)
    child(monkeypatch, "p.OCR_S = 0")
    assert "2 of them were not read in time" in refused("a.pdf", two)


def test_an_image_beyond_the_bound_of_pixels_is_not_decoded() -> None:
    wide = make.image_file([make.Image.new("1", (60_000, 1_000))], "PNG")
    assert "60,000,000 pixels" in refused("a.png", wide)


def test_a_damaged_image_is_refused() -> None:
    whole = make.image_file([make.picture([OIL])], "PNG")
    assert "cannot be read as PNG" in refused("a.png", whole[: len(whole) // 2])


def test_a_long_thin_page_is_drawn_small() -> None:
    assert [round(document_ocr._share(*size), 4) for size in ((2_000, 1_000), (4_000, 1), (1e6, 1e6))] == [
        1,
        0.5,
        0.0017,
    ]


def test_what_stands_at_one_height_is_one_line() -> None:
    def box(x: float, y: float) -> list[list[float]]:
        return [[x, y], [x + 50, y], [x + 50, y + 20], [x, y + 20]]

    assert in_lines([box(200, 3), box(0, 40), box(0, 0)], ["12.50", "valve", "seal"]) == "seal 12.50\nvalve"
    assert in_lines([], []) == ""
