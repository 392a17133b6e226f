"""``python -m sqair`` is the ``sqair`` command."""

import sys

from sqair.cli import program

if __name__ == "__main__":
    sys.exit(program())
