"""The reference, in both languages, names every option, path, column, finding, environment variable and exit code there is."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from paceline.core.i18n import LANGUAGES, Language
from paceline.core.schema import TABLES
from paceline.diagnosis.knowledge import all_entries

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
SOURCES = sorted((ROOT / "src" / "paceline").rglob("*.py"))
READ = re.compile(r"""(?:environ\w*(?:\.get|\.pop|\.setdefault)?|getenv)[\[(]\s*["']([A-Z][A-Z0-9_]+)["']""")
CODE = re.compile(
    r"(?:Exit|sys\.exit)\((\d+)\)|^    exit_code = (\d+)$|^(?:ALERTED|WORSE|NOT_AS_EXPECTED) = (\d+)$", re.MULTILINE
)
OURS = re.compile(r"\bPACELINE_[A-Z_]+[A-Z]\b")
NOT_FOR_USERS = {
    "OPENBLAS_NUM_THREADS",  # set for our own processes, see cli/address_space.py
    "RAY_USAGE_STATS_ENABLED",  # set, never read
    "PYTHONPATH",  # passed on to our own processes
}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str, language: Language) -> str:
    suffix = ".md" if language == "en" else ".zh.md"
    return (REFERENCE / f"{name}{suffix}").read_text(encoding="utf-8")


def test_the_generated_pages_are_what_the_program_says() -> None:
    """Every option of every command, every path of the API, and every column of its tables."""
    for name, content in script("write_reference").pages().items():
        assert (REFERENCE / name).read_text(encoding="utf-8") == content, "run scripts/write_reference.py"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_column_is_in_the_tables_page(language: Language) -> None:
    tables = script("write_tables_doc")
    content = tables.document(language)
    assert tables.TARGETS[language].read_text(encoding="utf-8") == content, "run scripts/write_tables_doc.py"
    for name, table in TABLES.items():
        section = content.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert all(f"\n| {column.name} |" in section for column in table.columns), name


def test_no_chinese_text_of_the_reference_is_left_over() -> None:
    texts = {text for table in TABLES.values() for text in (table.row, *(column.about for column in table.columns))}
    assert script("write_tables_doc").CHINESE.keys() == texts


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_finding_has_a_page(language: Language) -> None:
    folder, suffix = ROOT / "docs" / "knowledge-base", {"en": ".md", "zh": ".zh.md"}[language]
    index = (folder / f"README{suffix}").read_text(encoding="utf-8")
    for entry in all_entries():
        own = (folder / f"{entry.id}{suffix}").read_text(encoding="utf-8")
        title = {"en": "\n## What to do\n", "zh": "\n## 处理建议\n"}[language]
        assert f"]({entry.id}.md)" in index and title in own


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_environment_variable_is_documented(language: Language) -> None:
    documented = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", page("environment", language)))
    assert used_variables() - documented - NOT_FOR_USERS == set()


def test_both_pages_name_the_same_variables_and_codes() -> None:
    for name in ("environment", "exit-codes"):
        english, chinese = (re.findall(r"`([^`]+)`", page(name, language)) for language in LANGUAGES)
        assert english == chinese


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_exit_code_is_documented(language: Language) -> None:
    codes = {
        code for path in SOURCES for found in CODE.findall(path.read_text(encoding="utf-8")) for code in found if code
    }
    assert {"1", "2", "3", "5", "6", "130"} <= codes
    assert codes <= set(re.findall(r"\d+", page("exit-codes", language)))


def test_a_shell_can_complete_commands_and_options() -> None:
    """As reference/cli.md says: eval "$(_PACELINE_COMPLETE=source_bash paceline)"."""

    def answer(**variables: str) -> str:
        code = "import sys; sys.argv = ['paceline']; from paceline.cli.main import main; main()"
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False).stdout

    assert "complete -o default" in answer(_PACELINE_COMPLETE="source_bash")
    words = {"_PACELINE_COMPLETE": "complete_bash", "COMP_CWORD": "2", "COMP_WORDS": "paceline diagnose --fail"}
    assert answer(**words).split() == ["--fail-on"]


def used_variables() -> set[str]:
    found: set[str] = set()
    for path in SOURCES:
        source = path.read_text(encoding="utf-8")
        found |= set(READ.findall(source)) | set(OURS.findall(source))
    return found


def test_every_command_has_a_manual_page() -> None:
    pages = script("write_man_pages").pages()
    assert {"paceline.1", "paceline-diagnose.1", "paceline-job-submit.1"} <= pages.keys()
    assert ".B \\-\\-fail\\-on\n" in pages["paceline-diagnose.1"]
    assert all(re.match(r'\.TH "PACELINE[A-Z-]*" 1 ', content) for content in pages.values())
