"""Weights on disk: read, verify, reshard, merge; streaming, and without any framework.

strategy, description     which rank holds which part of which parameter
ckpt, safetensors, torch_zip, mindformers   what a file or directory says it holds
source, target            a checkpoint as pieces with places; the files to be written
gather, reshard           bytes from pieces to files: bounded memory, resumable, atomic
lora, inspect, verify     what else one does with weights
"""
