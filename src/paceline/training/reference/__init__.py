"""A GPT-2 small enough for a CPU: the workload for benchmarks and demonstrations, and the example to copy.

shape              the model's parameters: names, shapes, first values; the same for both frameworks
learner            what the runner asks of a model: an own one implements this protocol
gpt2_torch         GPT-2 in torch, data parallel with gloo
gpt2_mindspore     the same in MindSpore
text_data          any text as blocks of bytes, in an order that only the seed decides
"""
