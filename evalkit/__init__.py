"""Paired quality evaluation of index-reuse schedules for DeepSeek Sparse Attention."""
