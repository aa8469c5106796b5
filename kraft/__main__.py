"""`python -m kraft`: the command line."""

from kraft.cli.main import app

app()
