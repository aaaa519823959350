"""The processes that train one model together: who they are, what they agree on, and which weights lie where.

Nothing outside this package imports `torch.distributed`. One process is the ordinary case and takes the same path.
"""
