"""The pages: a server that reads what lies below one directory and shows it in a browser."""
