"""``python -m streamcore``."""

from streamcore.cli import app

app(prog_name="streamcore")
