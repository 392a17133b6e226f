"""``python -m sqair`` is the ``sqair`` command."""

import sys

from sqair.cli import main

if __name__ == "__main__":
    sys.exit(main())
