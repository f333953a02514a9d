"""The small DeepSeek-V3.2-architecture model: its tokenizer, its text, its training."""
