"""Differences between torch_npu and MindSpore in the same Ascend files: names, columns, units."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.simulate.model import Kernel


@dataclass(frozen=True)
class Dialect:
    suffix: str
    step_column: str
    has_state: bool  # an "OP State" column in kernel_details.csv
    block_column: str
    line_end: str
    has_stream_pointer: bool  # in memory_record.csv
    allocator: str  # component in memory_record.csv
    megabyte: int  # in memory_record.csv
    op_name_key: str  # in communication_matrix.json
    files_p2p: bool  # hcom_send and hcom_receive are listed under "p2p"
    host_lane: str
    communication_lane: str
    step_event: str  # prefix of the step number
    graph_names: bool  # kernels have names of the graph

    def kernel_name(self, kernel: Kernel, number: int) -> str:
        if self.graph_names:
            return f"{self.host_name(kernel, number)}/{kernel.type}"
        return kernel.name

    def host_name(self, kernel: Kernel, number: int) -> str:
        """The framework's operator that launches the kernel."""
        if self.graph_names:
            return f"Kernel::KernelLaunch::Default/network/{kernel.type}-op{number}"
        return f"aten::{kernel.type}"


TORCH = Dialect(
    suffix="_ascend_pt",
    step_column="Step Id",
    has_state=True,
    block_column="Block Dim",
    line_end="\r\n",
    has_stream_pointer=True,
    allocator="PTA",
    megabyte=1 << 20,
    op_name_key="Op Name",
    files_p2p=True,
    host_lane="Python",
    communication_lane="Communication",
    step_event="ProfilerStep#",
    graph_names=False,
)

# MindSpore looks for "Send" and "Receive", HCCL writes hcom_send: they end up under "collective".
# Its memory_record.csv divides KiB by 1000 and calls the result MB.
MINDSPORE = Dialect(
    suffix="_ascend_ms",
    step_column="Step ID",
    has_state=False,
    block_column="Block Num",
    line_end="\n",
    has_stream_pointer=False,
    allocator="MindSpore",
    megabyte=1_024_000,
    op_name_key="op_name",
    files_p2p=False,
    host_lane="MindSpore",
    communication_lane="HCCL",
    step_event="Python::ProfilerStep::ProfilerStep#",
    graph_names=True,
)
