"""Our tables beside the engines' own code; run by `make test-engines`."""
