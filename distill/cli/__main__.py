"""`python -m distill.cli`, for launchers that start modules."""

from distill.cli.main import main

main()
