"""The commands as users run them: output, files, exit codes, and what is said when things are wrong."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from support.run.profiles import write_rank

PACELINE = Path(sys.executable).with_name("paceline")


def paceline(*words: object, cache: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PACELINE_CACHE": str(cache), "LANG": "C.UTF-8", **(env or {})}
    command = [str(PACELINE), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    for rank in range(4):
        write_rank(root, rank, ranks=4, late_ms=4.0 if rank == 2 else 0.0)
    return root


def test_show_gives_an_overview_in_english_and_chinese(source: Path, tmp_path: Path) -> None:
    english = paceline("show", source, cache=tmp_path)
    assert english.returncode == 0 and english.stderr == ""
    assert english.stdout.startswith("4 ranks · 1 host · steps 1–2 · mean step")
    first = next(line for line in english.stdout.splitlines() if line.strip().startswith("2 "))
    assert "14.0" in first  # rank 2 computes 10 + 4 ms
    chinese = paceline("show", source, "--lang", "zh", cache=tmp_path)
    assert chinese.stdout.startswith("4 张卡 · 1 台主机")
    by_locale = paceline("show", source, cache=tmp_path, env={"LC_ALL": "zh_CN.UTF-8"})
    assert by_locale.stdout == chinese.stdout


def test_breakdown_names_the_slow_rank_in_both_languages_and_for_programs(source: Path, tmp_path: Path) -> None:
    english = paceline("breakdown", source, cache=tmp_path)
    assert english.returncode == 0 and "4 ranks · mean step" in english.stdout
    assert "rank 2 is" in english.stdout and f"paceline diagnose {source}" in english.stdout
    assert "慢卡 2：比同组慢" in paceline("breakdown", source, "--lang", "zh", cache=tmp_path).stdout
    said = json.loads(paceline("breakdown", source, "--json", cache=tmp_path).stdout)
    assert [rank["rank"] for rank in said["ranks"]] == [0, 1, 2, 3] and [slow["rank"] for slow in said["slow"]] == [2]
    few = paceline("breakdown", source, "--top", 1, cache=tmp_path).stdout
    assert "3 more ranks" in few


def test_show_table_as_json_csv_and_parquet_agree(source: Path, tmp_path: Path) -> None:
    rows = json.loads(paceline("show", source, "steps", "--format", "json", cache=tmp_path).stdout)
    assert {(row["rank"], row["step"]) for row in rows} == {(rank, step) for rank in range(4) for step in (1, 2)}
    assert rows[0]["exposed"] == 7_000_000 and rows[0]["data_wait"] is None
    text = paceline("show", source, "steps", "--format", "csv", cache=tmp_path).stdout
    assert [int(row["exposed"]) for row in csv.DictReader(io.StringIO(text))] == [row["exposed"] for row in rows]
    target = tmp_path / "steps.parquet"
    assert paceline("show", source, "steps", "-f", "parquet", "-o", target, cache=tmp_path).returncode == 0
    assert duckdb.sql(f"SELECT sum(exposed)::BIGINT FROM '{target}'").fetchall() == [
        (sum(row["exposed"] for row in rows),)
    ]


def test_show_empty_table_is_an_empty_json_array(source: Path, tmp_path: Path) -> None:
    assert json.loads(paceline("show", source, "flops", "--format", "json", cache=tmp_path).stdout) == []


def test_sql_answers_and_explains_errors(source: Path, tmp_path: Path) -> None:
    answer = paceline("sql", source, "select max(computing) as c from steps", "-f", "json", cache=tmp_path)
    assert json.loads(answer.stdout) == [{"c": 14_000_000}]
    wrong = paceline("sql", source, "select nothing from steps", cache=tmp_path)
    assert wrong.returncode == 2
    assert "the query failed" in wrong.stderr and "Traceback" not in wrong.stderr


def test_sql_only_asks(source: Path, tmp_path: Path) -> None:
    """It writes no file, opens none but the store's, loads no code, and stops at nothing with a traceback."""
    secret, written = tmp_path / "secret.csv", tmp_path / "written"
    secret.write_text("a,b\n1,2\n")
    refused = {
        f"copy steps to '{written}'": "COPY is not allowed",
        f"copy (pivot steps on step using sum(free)) to '{written}'": "MULTI is not allowed",
        f"explain analyze copy (select 1) to '{written}'": "EXPLAIN is not allowed",
        f"select 1; copy (select 1) to '{written}'": "one SQL statement",
        f"attach '{written}'": "ATTACH is not allowed",
        f"export database '{written}'": "EXPORT is not allowed",
        "install httpfs": "LOAD is not allowed",
        "set enable_external_access = true": "SET is not allowed",
        f"select * from '{secret}'": "the query failed",
        f"select * from read_csv('{secret}')": "but no files",
        "select * from glob('/etc/*')": "but no files",
        "select * from read_csv('http://127.0.0.1:9/a.csv')": "but no files",
        "select cast(format as int) from ranks": "the query failed: Conversion Error",
    }
    for query, reason in refused.items():
        answer = paceline("sql", source, query, cache=tmp_path)
        assert answer.returncode == 2, query
        assert reason in answer.stderr, (query, answer.stderr)
        assert "Traceback" not in answer.stderr
        assert not written.exists(), query


def test_sql_answers_all_kinds_of_questions(source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for query in (
        "from steps",
        "pivot steps on step using sum(free) group by rank",
        "describe steps",
        "summarize ranks",
        "show tables",
        "explain analyze select * from steps",
    ):
        answer = paceline("sql", source, query, "-f", "csv", "--store", tmp_path / "link/store", cache=tmp_path)
        assert answer.returncode == 0, (query, answer.stderr)
    target = tmp_path / "out" / "steps.parquet"
    paceline("sql", source, "from steps", "-f", "parquet", "-o", target, cache=tmp_path)
    assert duckdb.sql(f"SELECT count(*) > 0 FROM '{target}'").fetchall() == [(True,)]


def test_export_parquet_opens_again_with_the_same_tables(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "exported"
    assert paceline("export", source, "--to", "parquet", "-o", target, cache=tmp_path).returncode == 0
    for table in ("steps", "collectives", "links", "groups"):
        first = json.loads(paceline("show", source, table, "-f", "json", cache=tmp_path).stdout)
        again = json.loads(paceline("show", target, table, "-f", "json", cache=tmp_path).stdout)
        assert sorted(map(str, first)) == sorted(map(str, again))
    refused = paceline("export", source, "--to", "csv", "-o", target, cache=tmp_path)
    assert refused.returncode == 2 and "already exists" in refused.stderr


def test_export_chrome_trace_holds_every_rank_on_one_clock(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "trace.json.gz"
    done = paceline("export", source, "--to", "chrome-trace", "-o", target, "--ranks", "0,2-3", cache=tmp_path)
    assert done.returncode == 0, done.stderr
    events = json.loads(gzip.decompress(target.read_bytes()))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in spans} == {0, 2, 3}
    assert min(event["ts"] for event in spans) == 0
    assert (
        len({round(event["ts"] + event["dur"]) for event in spans if event["name"] == "hcom_allReduce__612_1_1"}) == 1
    )
    wrong = paceline("export", source, "--to", "chrome-trace", "--ranks", "x", cache=tmp_path)
    assert wrong.returncode == 2 and "neither a rank nor a range" in wrong.stderr


def test_wrong_arguments_are_one_sentence_and_exit_code_two(source: Path, tmp_path: Path) -> None:
    for words, said in (
        (("show", tmp_path / "absent"), "no such file or directory"),
        (("show", source, "speed"), "unknown table 'speed'"),
        (("show", source, "steps", "-f", "parquet"), "parquet cannot be written to the terminal"),
        (("simulate", tmp_path / "out", "--fault", "gremlins"), "gremlins"),
        (("simulate", tmp_path / "out", "--layout", "papyrus"), "papyrus"),
        (("simulate", tmp_path / "out", "--tp", "3"), "ranks"),
        (("show", source, "--nonsense"), "No such option"),
        (("show",), "Missing argument"),
    ):
        result = paceline(*words, cache=tmp_path / "cache")
        assert result.returncode == 2, (words, result)
        assert said in result.stderr and "Traceback" not in result.stderr


def test_a_broken_rank_is_named_and_the_rest_is_shown(source: Path, tmp_path: Path) -> None:
    broken = next(source.rglob("*103_*/ASCEND_PROFILER_OUTPUT/communication.json"))
    broken.write_text(broken.read_text()[:100])
    result = paceline("show", source, "collectives", "-f", "json", cache=tmp_path)
    assert result.returncode == 0
    assert {row["rank"] for row in json.loads(result.stdout)} == {0, 1, 2}
    assert "rank 3" in result.stderr and "communication.json: is cut off" in result.stderr


def test_simulate_then_show_finds_the_slow_rank_first(tmp_path: Path) -> None:
    out = tmp_path / "sim"
    made = paceline(
        "simulate", out, "--fault", "slow-rank:5:1.3", "--steps", "2", "--detail-ranks", "1", cache=tmp_path
    )
    assert made.returncode == 0, made.stderr
    shown = paceline("show", out, cache=tmp_path).stdout.splitlines()
    header = next(i for i, line in enumerate(shown) if line.startswith("rank"))
    assert shown[header + 1].split()[0] == "5"
    again = paceline("simulate", out, cache=tmp_path)
    assert again.returncode == 2 and "already exists" in again.stderr


def test_help_of_every_command_has_an_example(tmp_path: Path) -> None:
    for command in ("show", "sql", "export", "simulate"):
        text = paceline(command, "--help", cache=tmp_path).stdout
        assert "Example:" in text and f"paceline {command}" in text


def test_a_closed_pipe_is_no_error(source: Path, tmp_path: Path) -> None:
    command = f"{PACELINE} sql {source} 'select unnest(range(200000)) as n from steps limit 500000' -f csv | head -1"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PACELINE_CACHE": str(tmp_path)},
    )
    assert result.stdout == "n\n" and "Traceback" not in result.stderr
