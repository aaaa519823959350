"""The claims ledger: what others claim, what is run here to see, and what the runs decide. `groupwise claims`."""
