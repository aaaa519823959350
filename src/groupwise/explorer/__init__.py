"""The explorer: pages on which a person sees what a group, its rewards and its advantages did.

It reads run directories and nothing else: no model, no torch. `views` makes the facts of each page, `server` hands
them to a browser, `export` puts them into one file; the pages themselves are plain JavaScript in `static`.
"""
