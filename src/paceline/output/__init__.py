"""What people see: one-file HTML reports and the data behind them."""
