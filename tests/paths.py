"""Where tests find what is not theirs; `SHARED` is beside some checkouts only."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
SHARED = ROOT.parent / "shared"
TINY_MODEL = ROOT / "recipes" / "tiny" / "model"
