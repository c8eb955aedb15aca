"""Web server: finds the runs below one directory and serves their pages and REST API."""
