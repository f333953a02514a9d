"""What several benchmarks use: lengths, truncation, seeded randomness, word streams."""
