"""Measurements: speed and learning. Each script prints a table and, with --record, writes a file under records/."""
