"""The frozen model, its forward with captured indexer inputs, the students."""
