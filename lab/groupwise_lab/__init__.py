"""Beside Groupwise: claims of the field decided by runs, the exact gradient as an oracle, and runs of other systems."""
