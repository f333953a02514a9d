"""`python -m evalkit.cli`, for launchers that start modules."""

from evalkit.cli.main import main

main()
