"""The command line in this process."""

from __future__ import annotations

import sys

from evalkit.cli.main import main


def evalkit(*args: object) -> int:
    """Exit code of `evalkit ARGS`."""
    old, sys.argv = sys.argv, ["evalkit", *map(str, args)]
    try:
        main()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    finally:
        sys.argv = old
    return 0
