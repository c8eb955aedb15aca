"""Power and use from npu-smi and nvidia-smi: the text these programs really print, through executables on the PATH."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.bench.power.energy import PowerSampler, summary
from paceline.bench.power.power_meters import NPU_SMI, PowerReading, find_meter, parse_npu_smi, parse_nvidia_smi

ATLAS_900 = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.0                   Version: 24.1.0                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 250.5       34                0    / 0             |
| 0                         | 0000:C1:00.0  | 80          1197 / 13553      1365 / 32768         |
+===========================+===============+====================================================+
| 1     910B3               | Warning       | 66.9        34                0    / 0             |
| 0                         | 0000:81:00.0  | 40          2411 / 15665      4    / 32768         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 1234          | python                   | 1285                    |
| No running processes found in NPU 1                                                            |
+===========================+===============+====================================================+
"""
TWO_CHIPS = """\
| 0     Ascend910           | OK            | 171.3       36                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 10          0    / 0          3120 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           35                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 30          0    / 0          2888 / 65536         |
"""
ATLAS_300I = """\
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 6       310P3                 | OK              | NA           50                0     / 0             |
| 0       0                     | 0000:84:00.0    | 7            1839 / 21525                            |
"""


def program(directory: Path, name: str, text: str, code: int = 0) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.txt").write_text(text)
    path = directory / name
    path.write_text(f"#!/bin/sh\ncat '{directory}/{name}.txt'\nexit {code}\n")
    path.chmod(0o755)


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "bin"


def test_npu_smi_names_power_and_use_of_every_card() -> None:
    assert parse_npu_smi(ATLAS_900) == PowerReading(pytest.approx(317.4), pytest.approx(0.6), 2)


def test_npu_with_two_chips_tells_the_power_of_both_once() -> None:
    assert parse_npu_smi(TWO_CHIPS) == PowerReading(pytest.approx(171.3), pytest.approx(0.2), 2)


def test_power_that_is_not_told_is_unknown_not_zero() -> None:
    assert parse_npu_smi(ATLAS_300I) == PowerReading(None, pytest.approx(0.07), 1)
    assert parse_nvidia_smi("0, [N/A], 50\n1, 70.1, [Not Supported]\n") == PowerReading(None, pytest.approx(0.5), 2)
    assert parse_npu_smi("dcmi module initialize failed. ret is -8005\n") is None


@given(st.text(alphabet="|+=-0123456789.: NAaOK%\n", max_size=400))
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parse in (parse_npu_smi, parse_nvidia_smi):
        found = parse(text)
        assert found is None or found.cards > 0


def test_nvidia_smi_is_read() -> None:
    assert parse_nvidia_smi("0, 63.15, 0\n1, 310.05, 100\n") == PowerReading(pytest.approx(373.2), 0.5, 2)


def test_first_program_that_shows_cards_is_asked(on_path: Path) -> None:
    assert find_meter() is None
    program(on_path, "nvidia-smi", "0, 100.0, 50\n")
    meter = find_meter()
    assert meter is not None and meter.name == "nvidia-smi"
    program(on_path, "npu-smi", ATLAS_900)
    meter = find_meter()
    assert meter is not None and meter.name == "npu-smi"
    program(on_path, "npu-smi", "", code=1)
    meter = find_meter()
    assert meter is not None and meter.name == "nvidia-smi"


def test_energy_is_the_integral_of_the_power() -> None:
    samples = [
        (0.0, PowerReading(100.0, 0.5, 1)),
        (10.0, PowerReading(200.0, 1.0, 1)),
        (20.0, PowerReading(200.0, 0.6, 1)),
    ]
    found = summary("npu-smi", samples)
    assert (found.energy_consumption, found.average_power, found.max_power) == (3500.0, 175.0, 200.0)
    assert found.resource_util_ratio == pytest.approx(0.7)
    assert summary(None, []).average_power is None


def test_sampler_watches_until_it_is_left_and_leaves_no_thread(on_path: Path) -> None:
    program(on_path, "npu-smi", ATLAS_900)
    with PowerSampler(interval=0.01, meter=NPU_SMI) as sampler:
        while sampler.energy().samples < 3:
            threading.Event().wait(0.01)
    found = sampler.energy()
    assert found.average_power == pytest.approx(317.4) and found.samples >= 4 and found.cards == 2
    assert not [each for each in threading.enumerate() if each.name == "paceline-energy"]
    with PowerSampler(meter=None) as nothing:
        pass
    assert nothing.energy().source is None
