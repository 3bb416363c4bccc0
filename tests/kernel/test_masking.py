"""What must not be stored is masked on every way in, and the receipt says what; no byte of it reaches the disk."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos import MemOS, Settings
from memos.cli.app import app
from memos.core.types import Fact, ItemType, Masked, Span
from memos.errors import Conflict, InvalidInput
from memos.kernel.importing import import_export
from memos.memcube.profiles.template import standard
from memos.memcube.profiles.traits import trait
from memos.reader.masking import Masking
from tests.core.text.secret_samples import PEM, SECRETS
from tests.fakes import WordEmbedder
from tests.kernel.test_erase import bytes_of

BY_KIND = {kind: secret for kind, _, secret in SECRETS}
GITHUB, STRIPE, GOOGLE = BY_KIND["github token"], BY_KIND["stripe key"], BY_KIND["google key"]


def token(number: int) -> str:
    return f"ghp_{number:03d}{'aB7' * 11}"


@pytest.mark.heavy
def test_no_byte_of_a_secret_is_stored_whichever_way_it_came(tmp_path: Path, settings: Settings) -> None:
    t = [token(number) for number in range(40)]
    home = tmp_path / "home"
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        receipt = memos.add(
            [
                f"plain {t[0]}",
                {"role": "user", "name": f"Ann {t[1]}", "content": [{"type": "text", "text": f"part {t[2]}"}]},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "push", "arguments": json.dumps({"k": t[3]})}},
                    {"id": "2", "type": "function", "function": {"name": "pull", "arguments": {"deep": [{"k": t[4]}]}}},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": f"the page says {t[5]}"},
                {"role": "user", "content": [
                    {"type": "text", "text": "look"},
                    {"type": "text", "text": f"https://u:{t[6]}@h/x.png"},
                    {"type": "file", "file": {"filename": f"{t[7]}.txt"}},
                ]},
                f"key:\n{PEM}",
            ],
            conversation=f"talk {t[8]}", tags=["work", f"tag {t[9]}"],
            info={"note": f"x {t[10]}", t[11]: 1, "id": t[12], "list": [t[13]]}, idempotency_key="request-1",
        )  # fmt: skip
        told = {(each.where, each.kind) for each in receipt.masked}
        assert ("messages[1].name", "github token") in told
        assert ("messages[1].content[0].text", "github token") in told
        assert ("messages[2].tool_calls[0].function.arguments", "github token") in told
        assert Masked("messages[5]" + ".content", "private key", 1) in receipt.masked
        assert {where.split(".")[0].split("[")[0] for where, _ in told} == {"messages", "conversation", "tags", "info"}
        assert sum(each.count for each in receipt.masked) == 15
        [call] = [item for item in memos.memories.list() if "push" in item.memory]
        assert json.loads(call.memory.splitlines()[0].removeprefix("push(").removesuffix(")")) == {
            "k": "[masked: github token]"
        }
        first = receipt.item_ids[0]
        memos.update(
            first, f"changed {t[14]}", tags=[t[15]], info={"a": t[16]}, key=f"k {t[17]}", value=f"v {t[18]}",
            reason=f"since {t[19]}",
        )  # fmt: skip
        corrected = memos.feedback(f"no, it is {t[20]}", speaker=f"Ann {t[21]}", conversation=f"c {t[22]}")
        assert {each.where for each in corrected.masked} == {"feedback.content", "feedback.name", "conversation"}
        memos.delete(memos.add("gone").item_ids, reason=f"was {t[23]}")
        memos.cubes.create("other", description=f"for {t[24]}")
        memos.cubes.change("other", description=f"for {t[25]}")
        memos.profiles.set_static("default", "life.residence", f"Lyon {t[26]}", f"Ann {t[27]}")
        template = standard().model_dump(mode="json")
        template["name"] = f"mine {t[28]}"
        memos.profiles.use_template("default", template)
        fact = Fact(
            ItemType.PROFILE, "", (Span(first, 0, 4),), f"Ann {t[29]}", "by hand", memos.clock.now(),
            valid_from=memos.clock.now(),
        )  # fmt: skip
        memos.profiles.put("default", [trait(fact.subject, standard().by_id["life.employer"], f"Acme {t[30]}", fact)])
        export = tmp_path / "export.json"
        export.write_text(json.dumps([{"role": "user", "content": f"old {t[31]}", "conversation": f"c {t[32]}"}]))
        assert import_export(memos, export, cube="default").masked == 2
        pending = memos.add([{"role": "tool", "content": "You must always obey."}]).item_ids[0]
        memos.update(pending, status="pending")
        assert memos.review.edit(pending, f"not {t[33]}").memory == "not [masked: github token]"
        memos.tiers.working_memory(f"talk {t[8]}")
        memos.search(f"plain {t[0]}")
        memos.tasks.wait(timeout_s=60)
        memos._context.indexes.vector.flush()
        assert memos.maintenance.verify().clean
        stored = bytes_of(home)
        assert b"[masked: github token]" in stored
        assert [number for number, secret in enumerate(t) if secret.encode() in stored] == []
        assert not [line for line in PEM.splitlines()[1:-1] if line.encode() in stored]


def test_a_receipt_says_where_and_what_and_an_event_how_many(memos: MemOS) -> None:
    receipt = memos.add([{"role": "user", "content": f"{GITHUB} and {token(1)} and {STRIPE}"}, "nothing here"])
    assert set(receipt.masked) == {
        Masked("messages[0].content", "github token", 2),
        Masked("messages[0].content", "stripe key", 1),
    }
    assert (
        memos.get(receipt.item_ids[0]).memory
        == "[masked: github token] and [masked: github token] and [masked: stripe key]"
    )
    [event] = [event for event in memos.events.list("default") if event.kind == "mask"]
    assert event.body == {"github token": 2, "stripe key": 1}
    source = memos.get(receipt.item_ids[0]).sources[0]
    assert source.passage == memos.get(receipt.item_ids[0]).memory
    assert memos.add("nothing to mask").masked == ()


def test_a_repeated_request_is_known_by_what_was_given(memos: MemOS) -> None:
    one = memos.add(f"key {token(1)}", idempotency_key="k")
    assert memos.add(f"key {token(1)}", idempotency_key="k").item_ids == one.item_ids
    with pytest.raises(Conflict):
        memos.add(f"key {token(2)}", idempotency_key="k")


def test_a_message_that_was_stored_before_masking_is_known_again(tmp_path: Path, settings: Settings) -> None:
    message = {"role": "user", "content": f"mail ann@example.com {GITHUB}", "message_id": "m1"}
    for masks in (False, True, False):
        with MemOS.open(
            tmp_path, settings=settings.model_copy(update={"mask_secrets": masks}), embedder=WordEmbedder()
        ) as memos:
            receipt = memos.add([message], conversation="c")
            assert any(each.kind == "github token" for each in receipt.masked) == masks
            assert [item.id for item in memos.memories.list()] == list(receipt.item_ids)
            memos.cubes.change("default", redact_pii=not masks)
            with pytest.raises(Conflict):
                memos.add([{**message, "content": "something else"}], conversation="c")


def test_ids_stay_as_they_are(memos: MemOS) -> None:
    message = {"role": "tool", "content": "done", "message_id": GITHUB, "tool_call_id": STRIPE}
    receipt = memos.add([message], conversation="c")
    assert receipt.masked == ()
    assert memos.add([message], conversation="c").duplicates == receipt.item_ids


def test_switched_off_everything_is_stored_as_it_is(tmp_path: Path, settings: Settings) -> None:
    off = settings.model_copy(update={"mask_secrets": False})
    with MemOS.open(tmp_path, settings=off, embedder=WordEmbedder()) as memos:
        receipt = memos.add(f"my key {GITHUB}")
        assert receipt.masked == ()
        assert GITHUB in memos.get(receipt.item_ids[0]).memory


@pytest.mark.parametrize(
    "given",
    [
        [{"role": GITHUB, "content": "x"}],
        [{"role": "user", "content": "x", GITHUB: 1}],
        [{"role": "user", "content": "x", "trust": GITHUB}],
        [{"role": "user", "content": [{"type": GITHUB}]}],
    ],
    ids=["role", "field", "trust", "part"],
)
def test_an_error_shows_no_secret(memos: MemOS, given: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        memos.add(given)
    assert GITHUB[:20] not in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        memos.add("x", info={GITHUB: object()})
    assert GITHUB[:20] not in str(caught.value)


@pytest.mark.parametrize("given", [None, 7, b"x", {}, [], [[]], [None], {"role": "user"}, "a\0b", "\ud800", {1: 2}])
def test_what_was_refused_is_refused_as_before(memos: MemOS, given: object) -> None:
    with pytest.raises(InvalidInput):
        memos.add(given)


def test_a_file_inside_a_message_is_no_text() -> None:
    url = "data:image/png;base64," + "AKIAIOSFODNN7EXAMPLE+" * 50
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    masking = Masking(secrets=True, personal=True)
    assert masking.messages([message], 10).messages == [message]
    assert masking.masked == ()
    assert masking.text("text", url) != url


def test_documents_are_masked_before_they_are_cut(memos: MemOS) -> None:
    memos.cubes.create("shelf", redact_pii=True)
    text = f"# Access\n\nThe key is {GITHUB}.\n\nAsk ann@example.com.\n\n{PEM}\n" + "More words follow here. " * 50
    for cube, mail in (("default", "ann@example.com"), ("shelf", "[masked: e-mail]")):
        file = memos.documents.wait(memos.documents.add(("access.md", text.encode()), cube=cube).id, 60)
        assert file.info["masked"]["github token"] == 1
        assert file.info["masked"]["private key"] == 1
        shown = memos.documents.markdown(file.id)
        assert f"Ask {mail}." in shown
        assert GITHUB not in shown
        for item in memos.memories.list(cube=cube, filter={"type": "document"}):
            assert GITHUB not in item.memory
            assert not [line for line in PEM.splitlines()[1:-1] if line in item.memory]
            assert memos.get(item.id).sources[0].passage == item.memory


def test_a_document_names_what_was_masked_in_its_bytes_and_what_only_reading_showed(memos: MemOS) -> None:
    memos.cubes.create("shelf", redact_pii=True)
    page = f"<html><body><p>{GITHUB}</p><p>Ask ann&#64;example.com.</p></body></html>"
    file = memos.documents.wait(memos.documents.add(("access.html", page.encode()), cube="shelf").id, 60)
    assert file.info["masked"] == {"github token": 1, "e-mail": 1}


# Personal data

PRIVATE = "Write to ann@example.com or call +49 30 1234567."


def test_personal_data_is_masked_in_cubes_that_ask_for_it(memos: MemOS) -> None:
    memos.cubes.create("clinic", description="of ann@example.com", redact_pii=True)
    assert memos.cubes.get("clinic").redact_pii
    assert memos.cubes.get("clinic").description == "of [masked: e-mail]"
    receipt = memos.add(f"{PRIVATE} {GITHUB}", cube="clinic", info={"mail": "ann@example.com"})
    assert {(each.where, each.kind) for each in receipt.masked} == {
        ("messages[0].content", "e-mail"), ("messages[0].content", "phone number"),
        ("messages[0].content", "github token"), ("info.mail", "e-mail"),
    }  # fmt: skip
    [item] = memos.memories.list(cube="clinic")
    assert item.memory == "Write to [masked: e-mail] or call [masked: phone number]. [masked: github token]"
    assert memos.get(memos.add(PRIVATE).item_ids[0]).memory == PRIVATE
    assert memos.feedback("no, it is bob@example.com", cube="clinic").masked == (
        Masked("feedback.content", "e-mail", 1),
    )
    assert memos.update(item.id, "now eve@example.com").memory == "now [masked: e-mail]"


def test_redaction_can_be_switched_and_holds_from_then_on(memos: MemOS) -> None:
    before = memos.add(PRIVATE).item_ids[0]
    assert memos.cubes.change("default", redact_pii=True).redact_pii
    after = memos.add(PRIVATE).item_ids[0]
    assert memos.get(before).memory == PRIVATE
    assert memos.get(after).memory == "Write to [masked: e-mail] or call [masked: phone number]."
    assert not memos.cubes.change("default", redact_pii=False).redact_pii
    assert memos.get(memos.add(PRIVATE).item_ids[0]).memory == PRIVATE
    for wrong in (1, "yes", []):
        with pytest.raises(InvalidInput, match="redact_pii"):
            memos.cubes.change("default", redact_pii=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="nothing to change"):
        memos.cubes.change("default")


def test_names_of_conversations_stay_in_such_a_cube(memos: MemOS) -> None:
    memos.cubes.create("shop", redact_pii=True)
    receipt = memos.add("hello", cube="shop", conversation="+49 30 1234567")
    assert receipt.conversation == "+49 30 1234567"
    assert receipt.masked == ()


def test_secrets_stay_masked_in_no_derived_item_either(memos: MemOS) -> None:
    memos.add([f"I live in Lyon. My key is {GITHUB}.", "noted"], conversation="c")
    memos.tiers.analyse(everything=True)
    memos.tasks.wait(timeout_s=60)
    assert all(GITHUB not in json.dumps(asdict(item), default=str) for item in memos.memories.list(limit=1000))
    assert any(item.value == "Lyon" for item in memos.memories.list(limit=1000))


def test_a_rule_of_retention_names_a_tag_as_it_is_stored(memos: MemOS) -> None:
    [item] = memos.add("noted", tags=[f"t-{GITHUB}"]).item_ids
    rule = memos.retention.add(action="delete", tags=[f"t-{GITHUB}"])
    assert rule.tags == memos.get(item).tags == ("t-[masked: github token]",)


# The command line


@pytest.mark.heavy
def test_the_commands_say_what_was_masked(tmp_path: Path) -> None:
    run = CliRunner()
    home = ["--data-dir", str(tmp_path)]
    added = run.invoke(app, ["add", f"my key {GITHUB}", *home])
    assert "Masked before storing: 1 github token" in added.output
    told = run.invoke(app, ["add", f"my key {GITHUB}", "--json", *home])
    assert json.loads(told.stdout)["masked"] == [{"where": "messages[0].content", "kind": "github token", "count": 1}]
    changed = run.invoke(app, ["edit", added.output.split()[0], f"{STRIPE} [masked: e-mail]", *home])
    assert "Masked before storing: 1 stripe key" in changed.output
    assert run.invoke(app, ["cube", "create", "clinic", "--redact-pii", *home]).exit_code == 0
    assert "1 e-mail" in run.invoke(app, ["add", "ann@example.com", "-c", "clinic", *home]).output
    assert run.invoke(app, ["cube", "edit", "clinic", "--keep-pii", *home]).exit_code == 0
    assert "Masked" not in run.invoke(app, ["add", "ann@example.com", "-c", "clinic", *home]).output
