"""What an arm buys: latency and throughput under one load, beside the quality of the same arm."""
