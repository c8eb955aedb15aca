"""One of two MindSpore ranks on CPU under msrun, the second slowed; run as a program by the test.

msrun --worker_num=2 … two_ranks.py FOLDER
"""

from __future__ import annotations

import os
import sys

import numpy as np
from mindspore.communication import get_rank, init

import mindspore as ms
from mindspore import Tensor, ops
from paceline.profiling import Profiler

SIZE = 384
PRODUCTS = (6, 24)
"""Matrix products a step, by rank."""


def main() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    init()
    products = PRODUCTS[get_rank()]
    weight = Tensor(np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32) / SIZE**0.5)
    batch, all_reduce = weight, ops.AllReduce()
    with Profiler(start_step=3, stop_step=14, output_path=sys.argv[1]) as profiler:
        for _ in range(16):
            for _ in range(products):
                batch = ops.matmul(weight, batch)
            batch = ops.tanh(all_reduce(batch))
            batch.asnumpy()  # the step ends when its work does
            profiler.step()


if __name__ == "__main__":
    main()
