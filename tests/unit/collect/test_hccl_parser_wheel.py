"""`paceline hccl-parser raise-limit`: a wheel built like CANN's, its default and its check of `num`."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.main import application
from paceline.collect.hccl_parser_wheel import raise_limit
from paceline.core.errors import UsageError

ENTRY = '''# coding=utf-8
"""解析工具"""
LIMIT = 500


def hccl_parse_op(device_id, profiling_data_path, output_path,\\
                  op_type='all', begin=1, num=500):
    if begin > 2000 or num > 500:
        print('[ERROR] begin or num value is incorrect')
        return None
    print('说明', 500)
    return num
'''


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """As `python setup.py bdist_wheel` writes it."""
    path = tmp_path / "cann" / "hccl_parser-0.1-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hccl_parser/__init__.py", "")
        archive.writestr("hccl_parser/entry.py", ENTRY)
        archive.writestr(
            "hccl_parser-0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: hccl-parser\nVersion: 0.1\n"
        )
        archive.writestr(
            "hccl_parser-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        names = [*archive.namelist(), "hccl_parser-0.1.dist-info/RECORD"]
        archive.writestr(names[-1], "".join(f"{name},,\n" for name in names))
    return path


def test_default_and_check_are_raised_and_nothing_else(wheel: Path, tmp_path: Path) -> None:
    done = raise_limit(wheel, 20000, tmp_path / "out" / wheel.name)
    assert (done.module, done.old, done.new, done.checks) == ("hccl_parser/entry.py", 500, 20000, 1)
    with zipfile.ZipFile(tmp_path / "out" / wheel.name) as archive:
        source = archive.read("hccl_parser/entry.py").decode()
        assert source == ENTRY.replace("num=500", "num=20000").replace("num > 500", "num > 20000")
        record = archive.read("hccl_parser-0.1.dist-info/RECORD").decode()
    assert f",{len(source.encode())}\n" in record and record.count("sha256=") == 1


def test_pip_installs_it_and_the_parser_accepts_the_number(wheel: Path, tmp_path: Path) -> None:
    raise_limit(wheel, 20000, tmp_path / "out" / wheel.name)
    place = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "-q", "--target", str(place)]
    subprocess.run([*pip, str(tmp_path / "out" / wheel.name)], check=True, capture_output=True)
    call = "from hccl_parser.entry import hccl_parse_op; print(hccl_parse_op('0', '.', '.'))"
    called = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", call], cwd=place, capture_output=True, text=True, encoding="utf-8"
    )
    assert called.stdout.splitlines()[-1] == "20000"


def test_the_command_writes_the_wheel_and_the_two_lines_once(wheel: Path, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "ma-pre-start.sh").write_text("#!/bin/bash\nexport GLOG_v=3")
    words = ["hccl-parser", "raise-limit", str(wheel), "-n", "20000", "-o", str(code), "--lang"]
    for language in ("en", "zh"):
        done = CliRunner().invoke(application(), [*words, language])
        assert done.exit_code == 0 and "20000" in done.stdout and "500" in done.stdout
    assert (code / "ma-pre-start.sh").read_text().splitlines() == [
        "#!/bin/bash",
        "export GLOG_v=3",
        f"sudo pip install ${{LOCAL_DIR}}/${{WORK_DIR}}/{wheel.name} --force-reinstall",
        "export PYTHONPATH=/usr/local/ma/python3.7/lib/python3.7/site-packages:$PYTHONPATH",
    ]


@pytest.mark.parametrize(
    "content", ["no zip", {"other/x.py": "def f(): ..."}, {"hccl_parser/entry.py": "def hccl_parse_op(a): ..."}]
)
def test_another_file_is_refused_and_nothing_is_written(content: str | dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    if isinstance(content, str):
        path.write_text(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in content.items():
                archive.writestr(name, text)
    with pytest.raises(UsageError, match=r"x\.whl"):
        raise_limit(path, 20000, tmp_path / "out" / "x.whl")
    assert not (tmp_path / "out").exists()


def test_the_wheel_itself_is_never_overwritten(wheel: Path) -> None:
    before = wheel.read_bytes()
    done = CliRunner().invoke(
        application(), ["hccl-parser", "raise-limit", str(wheel), "-n", "20000", "-o", str(wheel.parent)]
    )
    assert isinstance(done.exception, UsageError) and wheel.read_bytes() == before
