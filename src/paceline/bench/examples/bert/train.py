"""The example's boot file: the bert workload with synthetic data, in torch or MindSpore.

A job passes --train_url=DIR (its output) and its hyperparameters; all of them are in paceline/training/workloads/options.py.
"""

import sys

from paceline.training.workloads.run_workload import main

sys.exit(main(["bert", *sys.argv[1:]]))
