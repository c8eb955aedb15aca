"""Random mutations of checkpoints, strategies and configurations, from fixed seeds: every byte we parse by hand.

    python -m robustness.checkpoints [--count 600] [--seed 1] [--jobs 2]                (in benchmarks/; `make fuzz`)

Every file is accepted before it is damaged. Exits with 1 if a case ends in a traceback, a hang or a crash.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from paceline.bench.bench_plan import load_bench_plan
from paceline.checkpoint.formats.open_container import open_container
from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy, read_strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensor_files import LocalFile
from paceline.core.protobuf import bytes_field, number_field
from paceline.core.rank_tables import generate_rank_table, rank_table_json, read_rank_table
from paceline.diagnosis.custom_rules import load_rule
from paceline.diagnosis.hardware import load_hardware
from paceline.jobs import load_job
from paceline.jobs.aisbench.aisbench_config import read_aisbench_config
from paceline.profiling.dynamic_config import read_request
from robustness.verdicts import GOOD, Outcome, Said, counted, judge, run_all

ROOT = Path(__file__).resolve().parents[2]
READ = Said("read", frozenset(), 1.0, False)


@dataclass(frozen=True)
class Input:
    """A kind of file: a good one, and what reads it."""

    name: str
    content: Callable[[], bytes]
    read: Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    input: str
    seed: int


def read_tensors(path: Path) -> int:
    """The index, and the bytes of every tensor."""
    file = LocalFile(path)
    tensors = open_container(file).tensors.values()
    return sum(len(file.read(*extent)) for tensor in tensors for extent in tensor.extents)


def ckpt() -> bytes:
    values = []
    for name in ("embedding.weight", "layer.0.bias"):
        tensor = number_field(1, 4) + number_field(1, 2) + bytes_field(2, b"Float32") + bytes_field(3, bytes(range(32)))
        values.append(bytes_field(1, bytes_field(1, name.encode()) + bytes_field(2, tensor)))
    return b"".join(values)


def safetensors() -> bytes:
    entry = {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}
    head = json.dumps({"__metadata__": {"format": "ms"}, "w": entry, "b": {**entry, "data_offsets": [32, 64]}}).encode()
    return len(head).to_bytes(8, "little") + head + bytes(range(64))


def torch_zip() -> bytes:
    """As torch.save writes a tensor of eight floats, written by hand: torch is not needed here."""
    pickled = (
        b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n"
        b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x08tQ"
        b"K\x00K\x04K\x02\x86K\x02K\x01\x86\x89ccollections\nOrderedDict\n)RtRs."
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", bytes(range(32)))
    return out.getvalue()


def strategy(as_json: bool) -> bytes:
    layouts = {"w": TensorLayout((4,), ((), (0,))), "b": TensorLayout((2, 2), ((), (1,)))}
    return encode_strategy(Strategy((layouts,)), merged=False, as_json=as_json)


def rule() -> bytes:
    page = (ROOT / "docs" / "custom-rules.md").read_text()
    return page.partition("```toml\n")[2].partition("```")[0].encode()


JOB = b"""job_name: gpt2
boot_file: train.py
nodes: 2
ranks: 8
hyperparameters: {lr: 0.1, epochs: 3}
environment: {A: "1"}
"""
AISBENCH = b"""from easydict import EasyDict as ed
access_config = ed({'access_key': 'A', 'secret_access_key': 's', 'server': 'https://obs.example.com',
    'region_name': 'r', 'project_id': '0', 'iam_endpoint': '', 'obs_endpoint': '', 'modelarts_endpoint': ''})
session_config = ed({'hyperparameters': [{'label': 'epoch_size', 'value': '90'}], 'inputs': '/bucket/imagenet/',
    'code_dir': '/bucket/resnet/code/', 'boot_file': '/bucket/resnet/code/train.py', 'job_name': 'resnet50',
    'framework_type': 'Ascend', 'framework_version': 'MindSpore-1.3', 'pool_id': None,
    'train_instance_type': 'modelarts.kat1.4xlarge', 'train_instance_count': 2, 'nas_type': None,
    'nas_share_addr': None, 'nas_mount_path': None, 'output_base': '/bucket/result/', 'out_base_url': '/bucket/o/',
    'job_description': 'x'})
"""


INPUTS: Mapping[str, Input] = MappingProxyType(
    {
        each.name: each
        for each in (
            Input("a.ckpt", ckpt, read_tensors),
            Input("a.safetensors", safetensors, read_tensors),
            Input("a.pt", torch_zip, read_tensors),
            Input("strategy.ckpt", partial(strategy, False), lambda path: read_strategy(str(path))),
            Input("strategy.json", partial(strategy, True), lambda path: read_strategy(str(path))),
            Input(
                "hccl.json",
                lambda: rank_table_json(generate_rank_table([("10.0.0.1", range(4)), ("10.0.0.2", range(4))])).encode(),
                read_rank_table,
            ),
            Input(
                "hardware.toml",
                lambda: (ROOT / "src" / "paceline" / "diagnosis" / "hardware.toml").read_bytes(),
                load_hardware,
            ),
            Input("rule.toml", rule, load_rule),
            Input("job.yaml", lambda: JOB, load_job),
            Input(
                "bench.yaml",
                lambda: next((ROOT / "src/paceline/bench/examples").rglob("bench.yaml")).read_bytes(),
                load_bench_plan,
            ),
            Input("modelarts_config.py", lambda: AISBENCH, read_aisbench_config),
            Input(
                "profiler_config.json",
                lambda: b'{"start_step": 2, "stop_step": 5, "profiler_level": 1, "activities": 0, "prof_path": "./"}',
                read_request,
            ),
        )
    }
)


def mutate(content: bytes, chance: random.Random) -> bytes:
    """One or two small changes."""
    for _ in range(chance.randint(1, 2)):
        content = _changed(content, chance)
    return content


def _changed(content: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut, removed, repeated or put in between."""
    at = chance.randrange(len(content) + 1)
    before, part, behind = (
        content[:at],
        content[at : at + (length := chance.choice((1, 1, 2, 8, 64)))],
        content[at + length :],
    )
    inserted = (b"\xff" * 9, b"9" * 25, b"-1", b"\0" * 8, b"NaN", b"[" * 300, b"{" * 300, b'"', b"}", b"\n", b"\t: ")
    return chance.choice(
        (
            before + chance.randbytes(1) + content[at + 1 :],
            before,
            before + behind,
            before + part * chance.choice((2, 1000)) + behind,
            before + chance.choice(inserted) + content[at:],
        )
    )


def run_case(case: Case) -> tuple[Outcome, str]:
    of = INPUTS[case.input]
    with tempfile.TemporaryDirectory(prefix="damaged-") as scratch:
        path = Path(scratch) / of.name
        path.write_bytes(of.content())
        path.with_name("train.py").touch()  # descriptions name it
        of.read(path)
        path.write_bytes(mutate(of.content(), random.Random(case.seed)))

        def work() -> Said:
            of.read(path)
            return READ

        return judge(READ, work, harmless=True)


def cases(count: int, seed: int) -> list[Case]:
    chance, names = random.Random(seed), sorted(INPUTS)
    return [Case(names[number % len(names)], chance.randrange(1 << 30)) for number in range(count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    results = list(run_all(run_case, cases(options.count, options.seed), options.jobs))
    for case, outcome, detail in results:
        if outcome not in GOOD:
            print(f"{outcome}: {case.input}, seed {case.seed}: {detail}")
    by_input = Counter((case.input, outcome) for case, outcome, _ in results)
    for (name, outcome), number in sorted(by_input.items()):
        print(f"  {name:22} {number:5} {outcome}")
    print(counted([outcome for _, outcome, _ in results]))
    return int(any(outcome not in GOOD for _, outcome, _ in results))


if __name__ == "__main__":
    sys.exit(main())
