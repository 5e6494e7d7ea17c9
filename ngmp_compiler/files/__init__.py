"""Files: programs and posteriors on disk."""
