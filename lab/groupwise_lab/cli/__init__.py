"""Commands that the lab adds to `groupwise`: `oracle`, `claims` and `import`."""
