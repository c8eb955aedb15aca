"""Checkpoint file formats: MindSpore .ckpt, safetensors, MindFormers 2.0, torch zip."""
