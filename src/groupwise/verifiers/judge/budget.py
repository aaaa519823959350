"""What may be spent on the judge: requests and tokens, counted over threads."""

import threading

from groupwise.errors import VerifierError


class Budget:
    """Counts what is spent and refuses to go on when it is too much: training on silence would be wrong."""

    def __init__(self, max_requests: int, max_total_tokens: int) -> None:
        self._limits = {"max_requests": max_requests, "max_total_tokens": max_total_tokens}
        self._spent = dict.fromkeys(self._limits, 0)
        self._lock = threading.Lock()

    def take_request(self) -> None:
        """Count one request.

        Raises:
            VerifierError: a budget is spent; names it.
        """
        with self._lock:
            for name, limit in self._limits.items():
                if self._spent[name] >= limit:
                    raise VerifierError(
                        f"the judge has spent its budget ({self._spent[name]} of verifier.judge.{name} = {limit}): "
                        "raise it to go on; replies in cache_dir cost nothing"
                    )
            self._spent["max_requests"] += 1

    def spend_tokens(self, tokens: int) -> None:
        """Count the tokens of one request and its reply."""
        with self._lock:
            self._spent["max_total_tokens"] += tokens
