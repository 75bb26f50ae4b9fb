"""Alembic's scripts: one module for each change of the tables."""
