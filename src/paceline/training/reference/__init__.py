"""Reference model: a GPT-2 small enough for a CPU, for benchmarks and demos, and as an example to copy.

shape              names, shapes and initial values of the parameters; the same for both frameworks
learner            the protocol between runner and model; implement it for your own model
gpt2_torch         GPT-2 in torch, data parallel with gloo
gpt2_mindspore     the same in MindSpore
text_data          text as blocks of bytes, in an order that depends only on the seed
"""
