"""Sharded safetensors checkpoints: read, dequantise, export."""
