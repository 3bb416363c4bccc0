"""The page Access: people, keys shown once, sharing as a matrix, the audit, and how programs connect."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import Open, Site, assert_accessible, assert_all_every_way, assert_fits

HOSTILE = "<img src=x onerror=alert(1)> [link](javascript:x) \u202eright to left"


PAGES = {
    "/access": "table",
    "/access/keys?identity=ana": "table",
    "/access/sessions": "table",
    "/access/sharing?with=ben": "table.matrix",
    "/access/audit": "table",
    "/access/connect": "pre",
}


def test_every_page_every_way(open_page: Open) -> None:
    assert_all_every_way(open_page, PAGES)


def test_an_admin_creates_a_person_a_group_and_disables(open_page: Open, site: Site) -> None:
    page = open_page("/access")
    page.locator("summary").first.click()
    page.get_by_label("Id", exact=True).fill("cleo")
    page.get_by_role("button", name="Create").click()
    row = page.get_by_role("row").filter(has_text="cleo")
    expect(row).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="cleo was created")).to_be_visible()
    page.locator("summary").first.click()
    page.get_by_label("Id", exact=True).fill("team")
    page.get_by_label("Kind").first.select_option("group")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="Members").click()
    page.get_by_label("User or agent").fill("nobody-here")
    page.get_by_role("button", name="Add to the group").click()
    expect(page.get_by_role("alert").filter(has_text="nobody-here")).to_be_visible()
    page.get_by_label("User or agent").fill("cleo")
    page.get_by_role("button", name="Add to the group").click()
    expect(page.get_by_role("cell", name="cleo", exact=True)).to_be_visible()
    assert site.memos.users.members("team") == ("cleo",)
    page.goto(f"{site.url}/console/access")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("row").filter(has_text="cleo").get_by_role("button", name="Disable").click()
    expect(page.get_by_role("row").filter(has_text="cleo").get_by_role("button", name="Enable")).to_be_visible()
    assert site.memos.users.get("cleo").disabled


def test_a_keys_secret_is_shown_once_and_works_until_it_is_revoked(open_page: Open, site: Site) -> None:
    page = open_page("/access/keys", "ana")
    page.keyboard.press("n")
    page.get_by_label("Where it is used").fill(HOSTILE)
    page.get_by_role("button", name="Create the key").click()
    secret = page.get_by_label("Secret")
    expect(secret).to_be_visible()
    assert_accessible(page)
    value = secret.input_value()
    key = site.memos.keys.authenticate(value).key
    assert (key.identity, key.rights) == ("ana", ("read", "write"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#notice")).to_contain_text("Copied")
    page.reload()
    expect(page.get_by_role("row").filter(has_text="onerror")).to_be_visible()
    assert value not in page.content()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("row").filter(has_text="onerror").get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row").filter(has_text="onerror")).to_contain_text("revoked")
    assert site.memos.keys.get(key.id).revoked_at is not None


def test_limits_and_what_a_key_used_today(open_page: Open, site: Site) -> None:
    page = open_page("/access/keys?identity=ben")
    page.locator("summary").first.click()
    page.get_by_label("Where it is used").fill("limited")
    page.get_by_text("Limits", exact=True).click()
    page.get_by_label("Memories a day").fill("5")
    page.get_by_role("button", name="Create the key").click()
    expect(page.get_by_role("row").filter(has_text="limited")).to_contain_text("0 of 5 memories")


def test_a_role_is_changed_in_the_matrix_by_keyboard(open_page: Open, site: Site) -> None:
    page = open_page("/access/sharing?with=ben", "ana")
    select = page.get_by_label("Role of ben on ana")
    select.press("ArrowDown")
    expect(page.locator("#notice")).to_contain_text("ben is now reader of ana")
    assert [grant.identity for grant in site.memos.sharing.grants("ana")] == ["ben"]
    page.get_by_label("Role of ben on ana").select_option("")
    expect(page.locator("#notice")).to_contain_text("no longer shared")
    assert site.memos.sharing.grants("ana") == ()
    page.get_by_label("Role of everyone on ana").select_option("reader")
    expect(page.locator("#notice")).to_contain_text("veryone is now reader")
    site.memos.sharing.revoke("ana", "*")


def test_the_audit_tells_of_keys_and_its_chain_is_verified(open_page: Open, site: Site) -> None:
    for number in range(60):
        site.memos.add(f"I saw bird {number}.", cube="ana", actor="ana")
    site.memos.keys.create("ana", HOSTILE, actor="ana")
    page = open_page("/access/audit?cube=ana", "ana")
    expect(page.get_by_role("cell", name="created a key").first).to_be_visible()
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    page.get_by_role("link", name="Show older").click()
    expect(page.get_by_role("cell", name="created the cube").first).to_be_visible()
    page.get_by_role("button", name="Verify the chain of ana").click()
    expect(page.get_by_text("chain verified")).to_be_visible()
    page.get_by_label("What").select_option("access")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**area=access**")
    expect(page.get_by_role("cell", name="added memories")).to_have_count(0)


def test_another_tenant_sees_only_what_is_theirs(open_page: Open, site: Site) -> None:
    site.memos.keys.create("ana", "anas-secret-place", actor="ana")
    for path in ("/access", "/access/keys", "/access/sessions", "/access/sharing", "/access/audit"):
        page = open_page(path, "ben")
        page.wait_for_selector("main h1")
        text = page.get_by_role("main").inner_text()
        assert "ana" not in text.replace("manage", ""), path
        page.context.close()
    page = open_page("/access/keys?identity=ana", "ben")
    expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()


def test_a_session_is_ended(open_page: Open, site: Site) -> None:
    caller = site.memos.keys.authenticate(site.ben)
    site.memos.sessions.start(caller, client="an old phone")
    page = open_page("/access/sessions", "ben")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("row").filter(has_text="an old phone").get_by_role("button").click()
    expect(page.get_by_role("row").filter(has_text="an old phone")).to_have_count(0)


def test_snippets_have_the_address_filled_in(open_page: Open, site: Site) -> None:
    page = open_page("/access/connect", "ana", phone=True)
    expect(page.locator("#claude")).to_contain_text(f"{site.url}/mcp")
    expect(page.locator("#python")).to_contain_text(site.url)
    assert_fits(page)
