"""`python -m groupwise`."""

from groupwise.cli.main import main

main()
