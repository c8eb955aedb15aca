"""`python -m paceline` is the `paceline` command."""

from paceline.cli.main import main

main()
