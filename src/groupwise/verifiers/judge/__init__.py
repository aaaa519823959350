"""A model's opinion as a verifier, through any OpenAI-compatible endpoint.

`config` what can be set; `prompt` what is sent, fenced; `opinion` what was said, read strictly; `post` one bounded HTTP
request; `endpoint` key, cache, budget and retries around it; `verifier` opinions become verdicts.
"""
