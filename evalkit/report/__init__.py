"""Tables of a comparison for a terminal and as Markdown."""
