"""``python -m sqair`` is the ``sqair`` command."""

from sqair.cli import main

if __name__ == "__main__":
    main()
