"""Counts to PostgreSQL: the third service of the word count."""
