"""``python -m midstream``: the same as the command ``midstream``."""

from midstream.cli.main import app

if __name__ == "__main__":
    app()
