"""The score of a benchmark: the documented digits, every layout, and no score where a file is missing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.bench.number_file import ACCURACY_KEYS, THROUGHPUT_KEYS, parse_number
from paceline.bench.result_files import ResultError, read_cluster
from paceline.bench.statistics.score import score_directory, with_slow_parts
from paceline.core.errors import FormatError, PacelineError
from support.bench.result_trees import cards_adding_up_to, cluster, paceline, single_servers
from support.storage.servers import S3Server

# The per-node values of ais-bench's documented logs; the cards behind them are ours, chosen to add up to these exactly.
BERT = (
    [450.77798444604605, 450.38567065252664],
    [0.7138142585754395, 0.7139078378677368],
    "450.58182754928634",
    "0.7138610482215881",
)
RESNET = (
    [14147.314993295107, 14155.048461692913],
    [0.7705078125, 0.7707316080729166],
    "14151.181727494011",
    "0.7706197102864583",
)


@pytest.mark.parametrize("cards", [3, 8])
@pytest.mark.parametrize("example", [BERT, RESNET])
def test_documented_results_come_out_to_the_last_digit(
    tmp_path: Path, example: tuple[list[float], list[float], str, str], cards: int
) -> None:
    sums, accuracies, throughput, accuracy = example
    where = single_servers(tmp_path / "out", [cards_adding_up_to(each, cards) for each in sums], accuracies)
    done = paceline("bench", "score", where, "--single-server", "--nodes", 2, "--json", tmp_path / "score.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"report >> throughput_list:[{sums[0]}, {sums[1]}] average:{throughput}",
        f"report >> accuracy_list:[{accuracies[0]}, {accuracies[1]}] average:{accuracy}",
    ]
    found = json.loads((tmp_path / "score.json").read_text())
    assert (str(found["throughput_ratio"]), str(found["accuracy"])) == (throughput, accuracy)
    assert found["cards"] == [cards_adding_up_to(each, cards) for each in sums]


def test_cluster_mode_adds_up_all_ranks(tmp_path: Path) -> None:
    found = score_directory(cluster(tmp_path, [10.5, 11.0, 9.5, 10.0], 0.5))
    assert (found.throughput, found.accuracy, found.ranks) == (41.0, 0.5, 4)
    assert found.lines()[0] == "report >> throughput_list:[41.0] average:41.0"


def test_json_objects_and_plain_text_are_read_alike(tmp_path: Path) -> None:
    cluster(tmp_path, [0, 0], None)
    (tmp_path / "throughput_0.json").write_text('{"throughput": 10.25, "unit": "samples/s"}')
    (tmp_path / "throughput_1.json").write_text('\ufeff"3e1"\n')
    (tmp_path / "accuracy.json").write_text('{"accuracy": "0.5"}')
    found = score_directory(tmp_path)
    assert (found.throughput, found.accuracy) == (40.25, 0.5)


def test_offline_layout_is_read(tmp_path: Path) -> None:
    for rank, value in enumerate((5.0, 7.0)):
        (tmp_path / f"throughput_rank_{rank}").write_text(f"{value}\n")
    (tmp_path / "eval_acc.log").write_text("0.25\n")
    found = score_directory(tmp_path)
    assert (found.throughput, found.accuracy) == (12.0, 0.25)
    assert "2 found (set --ranks)" in found.warnings[0]
    with pytest.raises(ResultError, match="throughput_rank_2: not found"):
        score_directory(tmp_path, ranks=3)


def test_every_missing_and_broken_file_is_named_and_there_is_no_score(tmp_path: Path) -> None:
    cluster(tmp_path, [1.0] * 8)
    (tmp_path / "throughput_3.json").unlink()
    (tmp_path / "throughput_5.json").write_text("")
    (tmp_path / "throughput_6.json").write_text("nan")
    (tmp_path / "throughput_7.json").write_text('{"throughput": ')
    (tmp_path / "throughput_0.json").write_text("-4")
    done = paceline("bench", "score", tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    for name in (
        "throughput_3.json: not found",
        "throughput_5.json: is empty",
        "throughput_6.json: 'nan' is not a number",
        "throughput_7.json: broken JSON",
        "throughput_0.json: -4.0 is less than 0",
    ):
        assert name in done.stderr
    assert "Traceback" not in done.stderr and "OK" not in done.stdout


def test_missing_accuracy_alone_has_its_own_exit_code(tmp_path: Path) -> None:
    cluster(tmp_path, [1.0], None)
    done = paceline("bench", "score", tmp_path)
    assert done.returncode == 3 and "accuracy.json: not found" in done.stderr
    assert paceline("bench", "score", tmp_path, "--no-accuracy").returncode == 0


def test_missing_node_and_missing_card_are_named(tmp_path: Path) -> None:
    single_servers(tmp_path, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0.1, 0.2, 0.3])
    with pytest.raises(ResultError, match=r"3/throughput_0\.json: not found"):
        score_directory(tmp_path, single_server=True, nodes=4)
    (tmp_path / "ranksize.json").unlink()
    assert score_directory(tmp_path, single_server=True).throughput == 7.0
    (tmp_path / "1" / "throughput_1.json").unlink()
    with pytest.raises(ResultError, match=r"1/throughput_1\.json: not found"):
        score_directory(tmp_path, single_server=True)


def test_wrong_number_of_ranks_is_no_score_and_leftovers_are_said(tmp_path: Path) -> None:
    cluster(tmp_path, [1.0, 2.0, 3.0])
    with pytest.raises(ResultError, match=r"ranksize\.json: 3, but the job had 4 ranks"):
        score_directory(tmp_path, ranks=4)
    (tmp_path / "ranksize.json").write_text("2")
    found = score_directory(tmp_path)
    assert found.throughput == 3.0 and "1 throughput file(s) beyond the 2 ranks" in found.warnings[0]


def test_results_in_a_bucket_are_scored_there(tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    bucket = s3.bucket()
    sums, accuracies, throughput, _ = BERT
    here = single_servers(tmp_path / "out", [cards_adding_up_to(each, 8) for each in sums], accuracies)
    (here / "checkpoint").mkdir()
    (here / "checkpoint" / "huge.ckpt").write_bytes(b"x" * 1000)
    from paceline.storage.transfer.transfer import transfer

    transfer(here, f"s3://{bucket}/V0003").raise_failures()
    done = paceline("bench", "score", f"s3://{bucket}/V0003", "--single-server", "--nodes", 2)
    assert done.returncode == 0, done.stderr
    assert f"average:{throughput}" in done.stdout
    missing = paceline("bench", "score", f"s3://{bucket}/nowhere")
    assert missing.returncode != 0 and "no such object or prefix" in missing.stderr


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_any_number_is_read_back_as_it_was_written(value: float) -> None:
    for text in (repr(value), f"  {value!r}\n", json.dumps({"throughput": value}), json.dumps(repr(value))):
        assert parse_number(text, THROUGHPUT_KEYS, Path("throughput_0.json")) == value


@given(st.text(max_size=60))
@example("1_000")
@example("١٢")
@example("0x10")
@example("Infinity")
@example("[1]")
@example("true")
@example('{"accuracy": true}')
@example('{"accuracy": NaN}')
@example("1e999")
@example('{"accuracy": {"accuracy": 1}}')
@example("[" * 50)
def test_anything_else_is_a_clear_error_never_a_number(text: str) -> None:
    try:
        number = parse_number(text, ACCURACY_KEYS, Path("accuracy.json"))
    except FormatError as error:
        assert str(error).startswith("accuracy.json: ")
    else:
        assert math.isfinite(number)
        assert text.strip().strip('"{').strip() != "" and any(letter in "0123456789" for letter in text)


def test_the_other_mode_is_proposed_and_a_slow_node_is_named(tmp_path: Path) -> None:
    for node, speed in enumerate((1768, 1368)):
        (tmp_path / str(node)).mkdir()
        for card in range(2):
            (tmp_path / str(node) / f"throughput_{card}.json").write_text(str(speed))
    with pytest.raises(PacelineError) as caught:
        score_directory(tmp_path, accuracy=False)
    assert caught.value.hint == "every node has results of its own: did you mean --single-server?"
    found = with_slow_parts(score_directory(tmp_path, single_server=True, accuracy=False))
    assert found.warnings == ("node 1 is slow: 2,736.0 samples/s, its peers 3,536.0 (-22.6 %)",)
    with pytest.raises(PacelineError) as caught:
        score_directory(tmp_path / "0", single_server=True, accuracy=False)
    assert caught.value.hint == "all ranks trained together: score without --single-server"


def test_a_remote_directory_is_called_as_the_user_called_it(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match=r"^obs://bucket/run: no score; result files missing or broken: 3\n"):
        read_cluster(tmp_path, source="obs://bucket/run")
