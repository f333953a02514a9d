"""Dense GQA + RoPE checkpoints, rewritten exactly as DeepSeek Sparse Attention models."""
