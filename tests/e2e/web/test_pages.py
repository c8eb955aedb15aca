"""The pages in a real browser, on simulated clusters of three sizes and on real recordings."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from support.reader_helpers import needs_fixtures
from support.web.browsing import drawn, fits, watched
from support.web.servers import Server

PAGES = (
    "overview",
    "steps",
    "communication",
    "communication?tab=links",
    "communication?tab=matrix",
    "communication?tab=collectives",
    "communication?tab=packets",
    "resources",
    "timeline",
    "what-if",
)
REAL_PAGES = ("overview", "steps", "communication", "communication?tab=matrix", "resources", "timeline")
CARD_TABS = ("steps", "operators", "communication", "input", "host", "memory")

expect.set_options(timeout=120_000)


@pytest.fixture
def trouble() -> list[str]:
    """Console errors, exceptions, failed and foreign requests."""
    return []


@pytest.fixture
def page(browser: Browser, server: Server, trouble: list[str]) -> Iterator[Page]:
    opened = watched(browser, server, trouble)
    yield opened
    opened.context.close()
    assert trouble == []


def test_from_the_list_to_the_guilty_card_in_two_clicks(page: Page, server: Server) -> None:
    server.ready("llama-16")
    page.goto(server.url)
    expect(page.locator("tr", has_text="llama-16").first).to_be_visible()
    page.get_by_role("searchbox").fill("llama-16")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="llama-16", exact=True).click()
    first = page.locator(".finding").first
    expect(first).to_contain_text("Rank 5 (host node1)")
    expect(first).to_contain_text("faster")
    drawn(page, ".map canvas")
    fits(page)
    first.locator("button.main").click()
    expect(page).to_have_url(re.compile(r"/steps\?finding=1$"))
    culprit = page.locator("[data-table=step-trace] tr.culprit")
    expect(culprit).to_contain_text("node1")
    culprit.get_by_role("link", name="5").click()
    expect(page.locator("h1")).to_contain_text("Rank 5 · node1")
    expect(page.locator(".card-findings")).to_contain_text("Finding 1")


def test_a_run_nobody_read_is_opened_with_progress(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/runs/{server.ids()['llama-16-fixed']}/overview")
    expect(page.locator("#findings h2")).to_have_text("What slows this run down", timeout=120_000)


def test_the_step_trace_is_sorted_filtered_paged_and_shared(page: Page, server: Server) -> None:
    run = server.ready("large-1024")
    page.goto(f"{server.url}/runs/{run}/steps")
    table = page.locator("[data-table=step-trace]")
    expect(table.locator("tbody tr").first).to_contain_text("517")
    expect(table.locator(".pager")).to_contain_text("1–25 of 1,024")
    drawn(page, "#parts canvas")
    drawn(page, "#self-time canvas")
    fits(page)
    table.get_by_role("button", name="Next").click()
    expect(table.locator(".pager")).to_contain_text("26–50 of 1,024")
    table.get_by_role("button", name="Compute").click()
    expect(table.locator("th[aria-sort=descending]")).to_contain_text("Compute")
    expect(table.locator("tbody tr").first).to_contain_text("517")
    page.locator("select[name=host]").select_option("node3")
    expect(table.locator(".pager")).to_contain_text("1–8 of 8")
    page.locator("select[name=step]").select_option("2")
    page.locator("select[name=stage]").select_option("0")
    expect(page).to_have_url(re.compile("sort=-compute.*host=node3.*step=2.*stage=0"))
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(table.locator(".pager")).to_contain_text("1–8 of 8")
    with page.expect_download() as download:
        table.get_by_role("link", name="Export CSV").click()
    assert download.value.path().read_text().count("\n") == 9


def test_a_bar_of_the_chart_leads_to_its_card(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/runs/{server.ready('llama-16')}/steps")
    drawn(page, "#parts canvas")
    canvas = page.locator("#parts canvas")
    canvas.focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".tip")).to_contain_text("Rank 5")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("Rank 5")


def test_links_of_a_rank_open_in_a_window_with_an_address(page: Page, server: Server) -> None:
    run = server.ready("llama-16")
    page.goto(f"{server.url}/runs/{run}/communication")
    drawn(page, "#ranks canvas")
    page.locator("[data-links='5']").click()
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text("Links of rank 5")
    expect(dialog.locator("tbody tr").first).to_contain_text("HCCS")
    expect(page).to_have_url(re.compile("links=5"))
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_the_whole_network_is_filtered_by_both_ends_and_transport(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/runs/{server.ready('llama-16')}/communication?tab=links&finding=2")
    table = page.locator("[data-table=links]")
    expect(table.locator("tbody tr").first).to_contain_text(re.compile("5[0-9] %"))
    expect(table.locator("tr.culprit")).to_have_count(1)
    page.locator("input[name=src]").fill("3")
    page.locator("input[name=dst]").fill("5")
    expect(table.locator("tbody tr")).to_have_count(1)
    page.locator("select[name=transport]").select_option("RDMA")
    expect(page.locator("#links")).to_contain_text("No link was recorded here")


@pytest.mark.parametrize("name", ["llama-16", "large-1024"])
def test_the_matrix_draws_every_link_and_leads_to_it(page: Page, server: Server, name: str) -> None:
    page.goto(f"{server.url}/runs/{server.ready(name)}/communication?tab=matrix")
    drawn(page, ".matrix canvas")
    for metric in ("Utilisation", "Bytes", "Time"):
        page.get_by_role("button", name=metric, exact=True).click()
        drawn(page, ".matrix canvas")
    by_rank = page.locator(".matrix canvas").get_attribute("aria-label") or ""
    page.get_by_role("button", name="Hosts", exact=True).click()
    expect(page.locator(".matrix canvas")).not_to_have_attribute("aria-label", by_rank)
    drawn(page, ".matrix canvas")
    page.get_by_role("button", name="Ranks", exact=True).click()
    expect(page.locator(".matrix canvas")).to_have_attribute("aria-label", by_rank)
    page.locator(".matrix canvas").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip")).to_contain_text("GB/s")
    page.keyboard.press("Enter")
    expect(page.locator("[data-table=links] tbody tr").first).to_be_visible()
    fits(page)


def test_a_collective_shows_who_came_last(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/runs/{server.ready('llama-16')}/communication?tab=collectives")
    table = page.locator("[data-table=collectives]")
    table.locator("tbody tr button").first.click()
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text(re.compile(r"Arrivals: .+ in step \d+, 4 ranks"))
    drawn(page, "dialog canvas")
    expect(dialog.locator("tbody tr")).to_have_count(4)
    dialog.get_by_role("button", name="Close").click()
    page.locator("input[name=q]").fill("no such collective")
    expect(page.locator("#executions")).to_contain_text("No collective was recorded")


def test_every_part_of_a_card(page: Page, server: Server) -> None:
    run = server.ready("llama-16")
    page.goto(f"{server.url}/runs/{run}/cards/5")
    for tab in CARD_TABS:
        page.locator(f"[data-tab={tab}]").click()
        expect(page.locator(".table, .empty").first).to_be_visible()
    drawn(page, "#memory canvas")
    page.locator("[data-tab=operators]").click()
    expect(page.locator("[data-table=operators] tr.culprit").first).to_contain_text("MatMulV2")
    page.get_by_role("button", name="by name").click()
    page.locator("input[name=q]").fill("attention")
    expect(page.locator("[data-table=operators] tbody tr").first).to_contain_text("FlashAttention")
    page.get_by_role("link", name="rank 6 →").click()
    expect(page.locator("h1")).to_contain_text("Rank 6")


def test_the_timeline_zooms_unfolds_searches_sums_and_exports(page: Page, server: Server) -> None:
    run = server.timeline("llama-16")
    page.goto(f"{server.url}/runs/{run}/timeline")
    canvas = page.locator(".timeline canvas")
    drawn(page, ".timeline canvas")
    expect(canvas).to_have_attribute("data-drawn", re.compile(r"^\d{3,}$"))
    canvas.focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile("from=.*to="))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("open="))
    page.get_by_role("button", name="Critical path").click()
    expect(page.locator(".legend")).to_contain_text("what decides the step")
    page.get_by_role("button", name="Select", exact=True).click()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 200, steps=4)
    page.mouse.up()
    expect(page.locator("#sums h2")).to_contain_text("Selected")
    expect(page.locator("#sums tbody tr").first).to_be_visible()
    page.locator("input[name=q]").fill("matmul")
    expect(page.locator("#hits h2")).to_contain_text("contain “matmul”")
    page.locator("#hits tbody button").first.click()
    page.locator("input[name=ranks]").fill("0-3")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export for Perfetto").click()
    assert '"traceEvents"' in download.value.path().read_text()
    page.locator("input[name=ranks]").fill("99")
    expect(page.locator(".empty")).to_contain_text("No such rank")


def test_a_timeline_of_a_thousand_ranks(page: Page, server: Server) -> None:
    run = server.timeline("large-1024")
    page.goto(f"{server.url}/runs/{run}/timeline")
    drawn(page, ".timeline canvas")
    expect(page.locator("main")).to_contain_text("1,024 ranks")
    canvas = page.locator(".timeline canvas")
    canvas.focus()
    page.keyboard.press("PageDown")
    drawn(page, ".timeline canvas")
    fits(page)


def test_fixes_are_ticked_and_the_next_bottleneck_named(page: Page, server: Server) -> None:
    run = server.ready("llama-16")
    page.goto(f"{server.url}/runs/{run}/what-if")
    holders = page.locator("#result tbody tr")
    expect(holders.first).to_contain_text("5")
    now = page.locator("[data-fixed]").inner_text()
    page.locator("input[name='rank:5']").check()
    expect(page.locator("[data-fixed]")).not_to_have_text(now)
    expect(page.locator("#result")).to_contain_text("% less time")
    page.get_by_label("Which one").fill("6")
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#fixes")).to_contain_text("Rank 6 as fast as its peers")
    expect(page).to_have_url(re.compile("fix=rank%3A5"))


def test_two_runs_are_picked_and_compared(page: Page, server: Server) -> None:
    before, after = server.ready("llama-16"), server.ready("llama-16-fixed")
    page.goto(f"{server.url}/compare")
    expect(page.locator(".empty")).to_contain_text("Choose two runs")
    page.locator("select[name=before]").select_option(before)
    page.locator("select[name=after]").select_option(after)
    expect(page.locator(".compared")).to_contain_text("faster")
    expect(page.locator(".fates .gone")).to_contain_text("Rank 5")
    expect(page.locator("#ranks tbody tr")).to_have_count(1)
    expect(page.locator("#links")).to_contain_text("changed by more than noise")
    page.get_by_role("button", name="all", exact=True).click()
    expect(page).to_have_url(re.compile("show=all"))
    page.locator("#ranks").get_by_role("button", name="Rank").click()
    expect(page).to_have_url(re.compile("rankssort=rank"))
    expect(page.locator("#ranks tbody td:first-child")).to_have_text([str(rank) for rank in range(12)])
    page.locator("#ranks").get_by_role("button", name="Next").click()
    expect(page.locator("#ranks tbody td:first-child")).to_have_text(["12", "13", "14", "15"])
    with page.expect_download() as download:
        page.locator("#ranks").get_by_role("link", name="Export CSV").click()
    assert download.value.path().read_text().count("\n") == 17


def test_work_is_shown_by_host_and_card_though_nobody_counted_it(page: Page, server: Server) -> None:
    run = server.ready("llama-16")
    page.goto(f"{server.url}/runs/{run}/resources")
    expect(page.locator("#flops .note")).to_contain_text("counted from the shapes of matrix products")
    expect(page.locator("#flops tbody tr")).to_have_count(16)
    page.locator("#flops tbody a").first.click()
    expect(page.locator("#flops tbody tr").first).to_contain_text("MatMulV2 [")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_in_chinese_and_both_colours(
    browser: Browser, server: Server, trouble: list[str], scheme: str
) -> None:
    run = server.timeline("team/mixtral-64")
    page = watched(browser, server, trouble, locale="zh-CN", color_scheme=scheme)
    for path in PAGES:
        page.goto(f"{server.url}/runs/{run}/{path}")
        expect(page.locator("main h1, main h2").first).to_have_text(re.compile("[\u4e00-\u9fff]|mixtral-64"))
        expect(page.locator(".busy, .waiting-table")).to_have_count(0)
        fits(page)
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.click("#language")
    expect(page.locator("main h1")).to_have_text("What if …")
    page.click("#theme")
    page.context.close()
    assert trouble == []


@needs_fixtures
def test_every_page_of_real_recordings(page: Page, server: Server) -> None:
    for name in [name for name in server.ids() if name.startswith("real/")]:
        run = server.ready(name)
        rank = next((row["rank"] for row in server.rows(run, "step-trace", limit=1)), 0)
        for path in (*REAL_PAGES, f"cards/{rank}?tab=operators", f"cards/{rank}?tab=input"):
            page.goto(f"{server.url}/runs/{run}/{path}")
            expect(page.locator("main h1, main h2").first).to_be_visible()
            expect(page.locator(".trouble, .waiting-table")).to_have_count(0)


def test_what_is_not_there_is_said(browser: Browser, server: Server) -> None:
    page = browser.new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{server.url}/runs/nothing-123456/steps")
    expect(page.locator(".trouble")).to_contain_text("Not found")
    run = server.ready("llama-16")
    page.goto(f"{server.url}/runs/{run}/cards/777")
    expect(page.locator(".trouble")).to_contain_text("no rank 777")
    page.close()


def test_odd_addresses_lead_somewhere(browser: Browser, server: Server) -> None:
    page = browser.new_page()
    page.set_default_timeout(120_000)
    run = server.ready("llama-16")
    page.goto(f"{server.url}/runs/{run}/steps?page=99")
    expect(page.locator("[data-table=step-trace] .pager")).to_contain_text("1–16 of 16")
    page.goto(f"{server.url}/runs/100%/overview")
    expect(page.locator(".trouble")).to_contain_text("Not found")
    page.locator(".trouble").get_by_role("link", name="All runs").click()
    expect(page.locator("tbody tr").first).to_be_visible()
    page.close()


def test_every_control_is_reached_by_keyboard(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/runs/{server.ready('llama-16')}/steps")
    drawn(page, "#self-time canvas")
    expect(page.locator("[data-table=step-trace] tbody tr").first).to_be_visible()
    reached = set()
    for _ in range(90):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("[document.activeElement.tagName, document.activeElement.name ?? ''].join(' ').trim()")
        )
    assert {"A", "BUTTON", "CANVAS", "SELECT step", "SELECT host", "SELECT stage", "SELECT group"} <= reached
