"""Test-wide settings."""

from __future__ import annotations

import os

# One thread per worker: two workers with all threads each make a two-core machine crawl.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The suite needs no network; a test that reaches for the hub must fail, not wait.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
