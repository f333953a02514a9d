"""Greedy search for the layers that keep their indexer."""
