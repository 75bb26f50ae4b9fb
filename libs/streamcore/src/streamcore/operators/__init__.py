"""Operators: steps over a batch of rows, compiled once when a task is built."""
