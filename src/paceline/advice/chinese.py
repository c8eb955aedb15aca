"""What rules measure, in Chinese: names of metrics, units and the words inside titles that are not in the knowledge base.

Rules speak English; `{}` stands for a name or number that is the same in both languages.
"""

from __future__ import annotations

import re
from functools import cache

METRICS = {
    "typical packet": "典型包大小",
    "bandwidth": "带宽",
    "bandwidth beside computing": "与计算并行时的带宽",
    "gradient communication on the main line": "未被掩盖的梯度通信",
    "hidden behind backward": "被反向计算掩盖的梯度通信",
    "own time a step": "每步自身耗时",
    "own time of stage {}": "阶段 {} 的自身耗时",
    "step if stage {} took as long as the others": "若阶段 {} 与其他阶段同样快的单步耗时",
    "step once the first finding is mended too": "首要问题解决后再修复此项的单步耗时",
    "the same kernels, time here": "相同算子在此处的耗时",
    "work a step at equal speed": "按相同速度折算的每步工作量",
    "last to arrive": "最后到达的占比",
    "ranks with missing data": "数据缺失的卡数",
    "wait for input": "等待输入数据",
    "device idle between kernels": "算子间空闲",
    "time on the AI CPU": "AI CPU 上的耗时",
    "moved": "传输量",
    "transfer": "传输耗时",
    "peak of device memory": "显存峰值",
    "step time": "单步耗时",
    "slowest rank over the median, step by step": "逐步统计：最慢卡高于中位数",
    "micro-batches a step": "每步 micro-batch 数",
    "idle share of an even pipeline": "均衡流水线的空闲占比",
    "bottleneck {}: output queue filled": "瓶颈 {}：输出队列占用率",
    "its input queue": "其输入队列占用率",
    "CPU of one of its workers": "其单个 worker 的 CPU 占用率",
    "sum of {}": "{} 之和",
    "mean of {}": "{} 均值",
    "max of {}": "{} 最大值",
    "share of the step: {}": "占单步的比例：{}",
}
UNITS = {"ms a step": "ms/步", "% of its collectives": "%（占其集合通信）", "ranks": "张卡"}
DETAILS = {"step {}": "第 {} 步", "steps {}": "第 {} 步"}


def in_chinese(text: str, words: dict[str, str]) -> str:
    """The Chinese of an English text, itself where there is none (a name, a symbol)."""
    if text in words:
        return words[text]
    for english, chinese in words.items():
        if "{}" in english and (found := _pattern(english).fullmatch(text)):
            return chinese.replace("{}", found[1])
    return text


@cache
def _pattern(english: str) -> re.Pattern[str]:
    before, after = english.split("{}")
    return re.compile(f"{re.escape(before)}(.+){re.escape(after)}", re.DOTALL)
