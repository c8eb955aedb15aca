"""cloud_session: download inputs, one output tree, upload outputs during and after training."""
