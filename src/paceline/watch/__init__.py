"""Watch a job while it trains: follow the logs of its light recorders and find persistently slow ranks."""
