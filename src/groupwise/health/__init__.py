"""What can be said about a run before it is started."""
