"""Results: posteriors, predictions, restarts, streams."""
