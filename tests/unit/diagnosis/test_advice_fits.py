"""Advice fits the recording: its device, its framework, and where the slow links lie."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.core.errors import FormatError
from paceline.diagnosis.finding import DirectedLink
from paceline.diagnosis.knowledge import all_entries, load_entry, parse_entry
from paceline.diagnosis.platform import fits, platform, reach
from support.fake_run import FakeRun

TOOLS = {"ascend": "npu-smi|hccn_tool|ascend-dmi", "nvidia": "nvidia-smi", "amd": "rocm-smi"}
NETWORK = re.compile("RoCE|roce|hccn_tool|optical|HCCL_RDMA|ibstat|perfquery|PFC|光模块")


@pytest.mark.parametrize("id", ["slow-link", "slow-rank", "slow-host", "frequency-drop", "jitter", "memory-imbalance"])
@pytest.mark.parametrize("device", sorted(TOOLS))
@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_device_is_asked_with_its_own_tool(id: str, device: str, language: str) -> None:
    said = "\n".join(load_entry(id).text(language).advice_for(frozenset({device, "network"})))
    others = "|".join(pattern for other, pattern in TOOLS.items() if other != device)
    assert not re.search(others, said)
    assert re.search(TOOLS[device], said) or id == "slow-link"


@pytest.mark.parametrize("device", ["ascend", "nvidia", "amd"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_link_inside_a_host_gets_no_check_of_the_network(device: str, language: str) -> None:
    advice = load_entry("slow-link").text(language).advice_for(frozenset({device, "inside"}))
    assert advice and not NETWORK.search("\n".join(advice))


def test_what_to_do_first_comes_first() -> None:
    slow_link = load_entry("slow-link").en
    assert slow_link.advice_for(frozenset({"ascend", "inside"}))[0].startswith("Query the signal quality")
    assert slow_link.advice_for(frozenset({"ascend", "network"}))[0].startswith("On both ends look for flaps")
    assert "nvidia-smi" in load_entry("slow-rank").en.advice_for(frozenset({"nvidia"}))[0]


def test_what_is_unknown_keeps_every_line() -> None:
    for entry in all_entries():
        assert entry.en.advice_for(frozenset()) == entry.en.advice


def test_no_recording_is_left_without_advice() -> None:
    for entry in all_entries():
        for device in TOOLS:
            for framework in ("torch", "mindspore", "mindspore-1"):
                for where in ("inside", "network"):
                    assert len(entry.zh.advice_for(frozenset({device, framework, where}))) >= 2, (entry.id, device)


def test_both_languages_say_the_same_to_the_same() -> None:
    for entry in all_entries():
        assert entry.en.advice_tags == entry.zh.advice_tags, entry.id


@pytest.mark.parametrize(
    ("transports", "where"),
    [
        (["HCCS"], {"inside"}),
        (["SDMA", "PCIE"], {"inside"}),
        (["RDMA"], {"network"}),
        (["RDMA", "HCCS"], set()),
        ([""], set()),
        ([], set()),
    ],
)
def test_where_links_lie(transports: list[str], where: set[str]) -> None:
    assert reach(DirectedLink(0, 1, transport) for transport in transports) == where


def test_tags_of_different_kinds_must_all_fit() -> None:
    tags = frozenset({"ascend", "inside"})
    assert fits(tags, frozenset({"ascend"}))
    assert fits(tags, frozenset({"ascend", "inside", "torch"}))
    assert not fits(tags, frozenset({"ascend", "network"}))
    assert not fits(tags, frozenset({"nvidia", "inside"}))


def test_an_unknown_tag_is_refused() -> None:
    text = dict.fromkeys(("title", "summary", "meaning", "measured"), "text")
    text["advice"] = [{"for": ["ascent"], "text": "Do this."}]  # type: ignore[assignment]
    with pytest.raises(FormatError, match="unknown tag 'ascent'; known: amd, ascend"):
        parse_entry({"id": "mine", "en": text, "zh": text}, Path("mine.toml"))


def test_a_page_of_the_knowledge_base_says_for_whom_each_line_is() -> None:
    lines = load_entry("slow-link").zh.labelled_advice("zh")
    assert lines[0].startswith("[昇腾, 机内] ")
    assert any(line.startswith("[AMD, NVIDIA, 机间] ") for line in lines)


@pytest.mark.parametrize(
    ("card", "calls", "kernels", "device"),
    [
        ("Tesla V100-DGXS-32GB", [], [], {"nvidia"}),
        ("AMD Instinct MI300X", [], [], {"amd"}),
        ("Intel(R) Data Center GPU Max 1550", [], [], {"intel"}),
        ("Ascend910B3", [], [], {"ascend"}),
        (None, ["hipLaunchKernel"], [], {"amd"}),
        (None, ["cudaLaunchKernel"], ["Cijk_Ailk"], {"nvidia"}),
        (None, ["urEnqueueKernelLaunch"], [], {"intel"}),
        (None, ["aten::mm"], ["Cijk_Ailk"], {"amd"}),
        (None, [], [], set()),
    ],
)
def test_the_device_is_the_recorded_card_else_what_its_runtime_is_called(
    card: str | None, calls: list[str], kernels: list[str], device: set[str]
) -> None:
    run = FakeRun(
        ranks=[{"rank": 0, "format": "kineto", "card": card}],
        host_calls=[{"rank": 0, "layer": "runtime", "name": name} for name in calls],
        kernels=[{"rank": 0, "name": name} for name in kernels],
    )
    assert platform(run) == device | {"torch"}  # type: ignore[arg-type]
