"""Tasks of logic and structure."""
