"""python -m paceline.training.workloads resnet50 --train_url=DIR --epochs=2 …"""

import sys

from paceline.training.workloads.run_workload import main

sys.exit(main(sys.argv[1:]))
