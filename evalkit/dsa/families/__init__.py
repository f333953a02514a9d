"""One adapter per model family: where its indexers sit and how they score."""
