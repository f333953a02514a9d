"""Who teaches whom, on which queries, with which loss."""
