"""Executors read batches of sections: processes of this machine, or workers of a running Dask or Ray cluster."""
