"""A made web: domains, sections and pages of which it is known what is mathematics, as a world to test recall in."""
