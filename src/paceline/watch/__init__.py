"""Looking at a job while it trains: what its light recorders append, read as it comes."""
