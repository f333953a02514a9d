"""Samples to token ids: chat templates, token counts, tokenizers."""
