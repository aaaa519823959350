"""Research on Groupwise itself: claims of the field decided by runs, and the exact gradient as an oracle."""
