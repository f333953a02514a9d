"""Latency and throughput of arms under one load, beside the quality of the same arms."""
