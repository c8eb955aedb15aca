"""Links between ranks and groups: traffic, bandwidth against that of their class, a model of their cost."""
