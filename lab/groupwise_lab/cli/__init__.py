"""Commands that the lab adds to `groupwise`: `oracle` and `claims`."""
