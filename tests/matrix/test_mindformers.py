"""The real MindFormers from PyPI builds our monitors from YAML, and MindSpore trains with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.conftest import environment, run

_SCRIPT = """
import sys, yaml
import numpy as np
import mindspore as ms
import paceline.integrations.mindformers
from mindformers.core.callback.build_callback import build_callback
from mindspore import nn
from mindspore.dataset import GeneratorDataset

ms.set_context(device_target="CPU", mode=1)
callbacks = [build_callback(entry) for entry in yaml.safe_load(open("run.yaml"))["callbacks"]]
for built, kind in zip(callbacks, ("ObsMonitor", "CheckpointMonitor", "ProfileMonitor", "RecorderMonitor")):
    assert type(built).__module__ == "paceline.integrations.mindformers" and type(built).__name__ == kind, built


class Rows:
    def __getitem__(self, place):
        return np.full(4, place, np.float32), np.ones(1, np.float32)

    def __len__(self):
        return 12


net = nn.Dense(4, 1)
model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.001))
model.train(1, GeneratorDataset(Rows(), ["row", "wanted"], shuffle=False).batch(2), callbacks=callbacks, dataset_sink_mode=False)
"""
_YAML = """
callbacks:
  - type: ObsMonitor
    target_dir: {target}
    step_upload_frequence: 3
  - type: CheckpointMonitor
    prefix: dense
    save_checkpoint_steps: 3
  - type: ProfileMonitor
    start_step: 2
    stop_step: 3
  - type: RecorderMonitor
"""


@pytest.mark.parametrize(("mindspore", "mindformers"), [("2.7.2", "1.8.0")])
def test_its_build_callback_builds_our_monitors_and_a_training_uses_them(
    mindspore: str, mindformers: str, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its models need operators that a CPU lacks, so MindSpore trains a linear layer with what MindFormers built."""
    python = environment("3.10", tmp_path / "venv")
    packages = (f"mindspore=={mindspore}", f"mindformers=={mindformers}", "numpy==1.26.4")
    run(str(python), "-m", "pip", "install", "--quiet", *packages)
    run(str(python), "-m", "pip", "install", "--quiet", f"{wheel}[checkpoint,storage]")
    assert "1.26.4" in run(str(python), "-c", "import numpy; print(numpy.__version__)")
    (tmp_path / "run.yaml").write_text(_YAML.format(target=tmp_path / "uploaded"))
    monkeypatch.setenv("LOCAL_DEFAULT_PATH", str(tmp_path / "output"))
    run(str(python), "-c", _SCRIPT, cwd=tmp_path)
    assert (tmp_path / "output" / "checkpoint" / "rank_0" / "dense_rank_0-1_6.ckpt").is_file()
    assert (tmp_path / "uploaded" / "checkpoint" / "rank_0" / "dense_rank_0-1_6.ckpt").is_file()
    assert list((tmp_path / "output").rglob("steps-*.jsonl"))
