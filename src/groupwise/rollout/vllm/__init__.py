"""Sampling by vLLM: servers of their own, reached over HTTP with token ids in and out. Nothing here imports vLLM."""
