"""A model's opinion as a verifier, through any OpenAI-compatible endpoint.

`config` what can be set; `prompt` what is sent, fenced; `endpoint` asks, with key, cache, budget and retries;
`verifier` reads an opinion strictly and makes it a verdict.
"""
