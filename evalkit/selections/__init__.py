"""How a full layer selects: the ways that are known, one file each (docs/shortcuts.md)."""
