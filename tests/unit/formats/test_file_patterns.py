"""Patterns of file names."""

from __future__ import annotations

import pytest

from paceline.formats.file_patterns import NO_FILES, FilePatterns


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("a.csv", "a.csv", True),
        ("a.csv", "x/y/a.csv", True),
        ("a.csv", "x/ba.csv", False),
        ("*.json", "x/.json", True),
        ("hccl_raw_*.csv", "hccl_raw_12.csv", True),
        ("hccl_raw_*.csv", "hccl_raw.csv", False),
        ("ab*b.c", "ab.c", False),
        ("a*b*c", "axbxc", True),
        ("a*b*c", "acb", False),
        ("a*b*c", "abc", True),
        ("device_*/info.json.*", "PROF_1/device_3/info.json.3", True),
        ("device_*/info.json.*", "device_3/info.json.3", True),
        ("device_*/info.json.*", "info.json.3", False),
        ("device_*/info.json.*", "device_3/x/info.json.3", False),
        ("hccl_info*/*/iter*.trace", "0/hccl_info_0/all_reduce/iter1.trace", True),
        ("hccl_info*/*/iter*.trace", "hccl_info_0/iter1.trace", False),
    ],
)
def test_a_pattern_is_a_name_or_the_end_of_a_path(pattern: str, key: str, matches: bool) -> None:
    assert FilePatterns((pattern,)).matches(key) == matches
    directory, _, name = key.rpartition("/")
    assert FilePatterns((pattern,)).match_any({directory: {name}}, {name}) == matches


def test_exceptions_are_names_and_directories() -> None:
    files = FilePatterns(("*.json",), except_names=("trace_view*",), not_below=("kernel_meta", "PROF_*/host"))
    assert files.matches("a.json") and files.matches("host/a.json") and files.matches("PROF_1/x/host/a.json")
    assert not files.matches("x/trace_view.json")
    assert not files.matches("x/kernel_meta/y/a.json")
    assert not files.matches("PROF_1/host/deeper/a.json")
    assert files.matches("kernel_meta.json")


def test_no_patterns_match_nothing() -> None:
    assert not NO_FILES.matches("a.json") and not NO_FILES.match_any({"": {"a.json"}}, {"a.json"})
