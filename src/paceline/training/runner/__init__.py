"""`paceline train`: a config file, arguments that override it, and the modes train, finetune, eval and predict.

config, arguments          keys of the YAML file; errors name the line or argument
entrypoint                 run as a rank, as the launcher of ranks, or as ModelArts starts it
modes, training_loop       the run modes; the training loop
initial_weights, results   where weights come from; throughput, accuracy and loss files
"""
