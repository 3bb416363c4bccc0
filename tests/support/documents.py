"""Makes small documents of every kind, and some that are meant to harm; none comes from outside."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openpyxl
from fpdf import FPDF
from fpdf.enums import EncryptionMethod
from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation

_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf(pages: Sequence[str], *, outline: Mapping[int, str] | None = None, password: str | None = None) -> bytes:
    """Return a PDF with these texts, one a page; `outline` names pages by their place."""
    made = FPDF()
    for place, text in enumerate(pages):
        made.add_page()
        made.set_font("Helvetica", size=11)
        if outline and place in outline:
            made.start_section(outline[place])
        made.multi_cell(0, 5, text=text, new_x="LMARGIN", new_y="NEXT")
    if password is not None:
        made.set_encryption(
            owner_password=password + "o", user_password=password, encryption_method=EncryptionMethod.RC4
        )
    return bytes(made.output())


def scanned(pages: int) -> bytes:
    """Return a PDF whose pages are pictures."""
    made = FPDF()
    for shade in range(pages):
        made.add_page()
        made.image(Image.new("RGB", (40, 40), (shade, 90, 90)), x=10, y=10, w=50)
    return bytes(made.output())


def picture(lines: Sequence[str], size: int = 30) -> Image.Image:
    """Return a picture of lines of text."""
    font = ImageFont.load_default(size=size)
    width = max(int(font.getlength(line)) for line in lines)
    made = Image.new("L", (width + 80, 2 * size * len(lines) + 80), 255)
    for place, line in enumerate(lines):
        ImageDraw.Draw(made).text((40, 40 + 2 * size * place), line, fill=0, font=font)
    return made


def chinese_picture() -> Image.Image:
    """Return a picture of two Chinese lines, which stands in a file since a font for them is large."""
    with Image.open(Path(__file__).with_name("chinese_page.png")) as image:
        return image.convert("L")


def image_file(images: Sequence[Image.Image], kind: str, **more: Any) -> bytes:
    """Return an image file with these pictures, one behind the other."""
    target = io.BytesIO()
    first, *rest = images
    first.save(target, kind, **({"save_all": True, "append_images": rest} if rest else {}), **more)
    return target.getvalue()


def pdf_of(pages: Sequence[str | Image.Image | None]) -> bytes:
    """Return a PDF whose pages are texts, pictures or nothing at all."""
    made = FPDF()
    for page in pages:
        made.add_page()
        if isinstance(page, Image.Image):
            made.image(page, x=10, y=10, w=190)
        elif page is not None:
            made.set_font("Helvetica", size=11)
            made.multi_cell(0, 5, text=page, new_x="LMARGIN", new_y="NEXT")
    return bytes(made.output())


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    """Return a zip archive; its parts are compressed, but for `mimetype`."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)
    return target.getvalue()


def docx(paragraphs: Sequence[tuple[str, str]]) -> bytes:
    """Return a Word document; each paragraph is a style (`Heading1`, `Heading2` or empty) and a text."""
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>' if style
        else f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"
        for style, text in paragraphs
    )  # fmt: skip
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{level}"><w:name w:val="heading {level}"/></w:style>'
        for level in (1, 2)
    )
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{_TYPES}"><Default Extension="rels" ContentType='
            '"application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{kind}.document.main+xml"/>'
            f'<Override PartName="/word/styles.xml" ContentType="{kind}.styles+xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="r1" '
            f'Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="r1" '
            f'Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>',
            "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">{styles}</w:styles>',
            "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
        }
    )


def xlsx(sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
    """Return a workbook."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


def pptx(slides: Sequence[tuple[str, str]]) -> bytes:
    """Return slides, each a title and a text."""
    made = Presentation()
    for title, text in slides:
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    target = io.BytesIO()
    made.save(target)
    return target.getvalue()


def epub(chapters: Sequence[tuple[str, str]]) -> bytes:
    """Return a book, each chapter a title and a text."""
    names = [f"c{number}.xhtml" for number in range(len(chapters))]
    manifest = "".join(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in names)
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A book</dc:title></metadata>'
        f"<manifest>{manifest}</manifest><spine>{spine}</spine></package>"
    )
    container = (
        '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
        'full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    parts = {
        f"OEBPS/{name}": f"<html><body><h1>{title}</h1><p>{text}</p></body></html>"
        for name, (title, text) in zip(names, chapters, strict=True)
    }
    return zipped(
        {
            "mimetype": "application/epub+zip", "META-INF/container.xml": container, "OEBPS/content.opf": package,
            **parts,
        }
    )  # fmt: skip


def bomb(megabytes: int) -> bytes:
    """Return a Word document that would unpack to a thousand times its size."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        with archive.open("word/document.xml", "w") as part:
            for _ in range(megabytes):
                part.write(bytes(1 << 20))
    return target.getvalue()
