"""Workloads of benchmarks with synthetic data: ResNet-50 and BERT, in torch and MindSpore, at any size.

options            hyperparameters, from --name=value
synthetic_data     images and sentences that can be learnt, so that accuracy and time to quality mean something
model_flops        parameters and FLOPs of both models, from their shapes
data_parallel      the protocol between the loop and a framework
torch_models, mindspore_models        the models
torch_trainer, mindspore_trainer      device, gradients, averaging over ranks
run_workload       the loop: training, evaluation, result files (docs/bench.md)
"""
