"""What users of MindInsight look for on the pages, on recordings in its layout (docs/guides/mindinsight.md)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from support.kit_tables import build_cases, needs_kit
from support.web.browsing import watched
from support.web.servers import Serve, Server

pytestmark = needs_kit
expect.set_options(timeout=120_000)


@pytest.fixture(scope="module")
def cases(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A run of MindInsight r1.3, and the same without the files of profile_communication=True."""
    target = tmp_path_factory.mktemp("guide-pages")
    build_cases(target, ["k04"])
    silent = target / "cases" / "silent"
    shutil.copytree(target / "cases" / "k04", silent)
    for path in silent.rglob("hccl_raw_*.csv"):
        path.unlink()
    return serve(target / "cases")


@pytest.fixture
def page(browser: Browser, cases: Server) -> Iterator[Page]:
    trouble: list[str] = []
    opened = watched(browser, cases, trouble)
    yield opened
    opened.context.close()
    assert trouble == []


def test_all_runs_are_read_by_one_button(page: Page, cases: Server) -> None:
    page.goto(cases.url)
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Read all").click()
    expect(page.locator("tr", has_text="k04").first).to_contain_text("Rank 10 (host 2)")
    expect(page.locator(".answer-cell .severity")).to_have_count(2)
    expect(page.get_by_role("button", name="Read all")).to_have_count(0)


def test_filters_take_lists_of_ranks_and_name_what_they_cannot_read(page: Page, cases: Server) -> None:
    page.goto(f"{cases.url}/runs/{cases.ready('k04')}/communication?tab=links")
    links = page.locator("[data-table=links] tbody tr")
    expect(links).to_have_count(16)
    page.fill("input[name=src]", "0-3, 12")
    expect(links).to_have_count(5)
    page.fill("input[name=src]", "0-3; 12")
    expect(page.get_by_role("alert")).to_contain_text("“0-3; 12” is not a list of ranks. Write ranks like 0-7, 12.")
    expect(links).to_have_count(0)
    page.fill("input[name=src]", "")
    expect(links).to_have_count(16)
    refused = cases.client.get(f"/runs/{cases.ready('k04')}/tables/links", params={"src": "x", "lang": "zh"})
    assert refused.status_code == 400
    assert refused.json()["error"] == "“x”不是卡号列表"


def test_links_are_per_step_or_in_total(page: Page, cases: Server) -> None:
    run = cases.ready("k04")
    step, total = (cases.rows(run, "links", src="0", per=per)[0] for per in ("step", "total"))
    assert total["bytes"] == pytest.approx(5 * step["bytes"])  # five steps count
    assert total["bandwidth"] == step["bandwidth"]
    page.goto(f"{cases.url}/runs/{run}/communication?links=0")
    expect(page.locator("dialog")).to_contain_text("Links of rank 0, per step")
    page.locator("dialog").get_by_role("button", name="in total").click()
    expect(page.locator("dialog")).to_contain_text("Links of rank 0, in total")


def test_columns_carry_the_names_of_the_guide(page: Page, cases: Server) -> None:
    page.goto(f"{cases.url}/runs/{cases.ready('k04')}/steps")
    head = page.locator("[data-table=step-trace] thead")
    for name in ("Input wait", "iteration interval", "Forward and backward", "fp and bp", "Tail"):
        expect(head).to_contain_text(name)
    expect(head).not_to_contain_text("Overlapped")  # not known of phases
    page.click("#language")
    for name in ("迭代间隙", "前反向", "迭代拖尾"):
        expect(head).to_contain_text(name)


def test_without_communication_files_the_switch_is_named_and_no_waiting_shown(page: Page, cases: Server) -> None:
    page.goto(f"{cases.url}/runs/{cases.ready('silent')}/communication")
    expect(page.locator("main .empty")).to_contain_text("profile_communication=True")
    expect(page.locator("[data-table=communication] tbody tr")).to_have_count(16)
    expect(page.locator("#ranks")).not_to_contain_text(re.compile("waiting", re.IGNORECASE))


def test_a_memory_summary_alone_is_shown_on_the_card(page: Page, cases: Server) -> None:
    page.goto(f"{cases.url}/runs/{cases.ready('k04')}/cards/10?tab=memory")
    expect(page.locator("#memory")).to_contain_text("Peak memory of rank 10")
    expect(page.locator("[data-table=memory]")).to_contain_text("32.0")
    expect(page.locator("[data-table=memory] thead")).to_contain_text("GiB")
    expect(page.locator("main")).not_to_contain_text("Memory was not recorded")


def test_a_card_at_a_glance_leads_to_its_tabs(page: Page, cases: Server) -> None:
    page.goto(f"{cases.url}/runs/{cases.ready('k04')}/cards/10")
    expect(page.locator("nav [aria-current=page]")).to_have_text("Rank 10")
    for tab in ("steps", "operators", "communication", "input", "memory"):
        expect(page.locator(f"[data-glance={tab}]")).to_be_visible()
    expect(page.locator("[data-glance=communication] .small-bars li")).to_have_count(5)
    page.locator("[data-glance=communication] button").click()
    expect(page).to_have_url(re.compile("tab=communication"))
    expect(page.locator("[data-table=card-collectives]")).to_be_visible()


def test_what_if_offers_only_what_the_run_has(cases: Server) -> None:
    offered = {fix["fix"] for fix in cases.get(f"/runs/{cases.ready('k04')}/fixes")["fixes"]}
    assert "rank:10" in offered
    assert "stages" not in offered  # one stage


def test_a_matrix_by_transport_names_each_once(page: Page, cases: Server) -> None:
    page.goto(f"{cases.url}/runs/{cases.ready('k04')}/communication?tab=matrix&metric=transport")
    expect(page.locator("#matrix .legend li")).to_have_text(["RDMA", "SDMA"])
