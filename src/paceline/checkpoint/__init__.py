"""Checkpoints: read, verify, reshard, convert and merge weights, streaming and without a framework.

tensors, tensor_files           element types, slices of tensors, the index of a file, reading files by ranges
plan                            the content of a file to be written, and reading it from the source files
strategy                        which rank holds which slice of which parameter
formats                         MindSpore .ckpt, safetensors, MindFormers 2.0, torch zip
source_checkpoint, target_files the checkpoint to read; the files to write
reshard, transform              write the files: bounded memory, resumable, atomic
lora, inspect, verify, resume   merge LoRA, show and compare, check, find the checkpoint to resume from
"""
