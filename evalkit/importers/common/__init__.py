"""What the import formats share."""
