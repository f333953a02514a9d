"""Servers with an OpenAI-compatible API."""
