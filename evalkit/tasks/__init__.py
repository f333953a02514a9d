"""Benchmarks as pure functions of (task, length, seed, index, tokenizer)."""
