"""`paceline train`: a config file, arguments over it, and one of train, finetune, eval, predict.

config, arguments               what is to be done, with the line that says it
starting                        one process, or many: as a rank, as a launcher, on ModelArts
modes                           the ways to run; training_loop is the one that takes long
starting_weights, results       where weights come from; what is left for benchmarks and people
"""
