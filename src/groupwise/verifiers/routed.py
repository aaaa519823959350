"""The verifier of mixtures: every request goes to the verifier that its problem names."""

from collections.abc import Sequence
from contextlib import ExitStack

from groupwise.errors import ConfigError
from groupwise.types import Problem, Verdict
from groupwise.verifiers.base import Request, Verifier, VerifierConfig


class RoutedVerifier(Verifier):
    """Sends requests on by `problem.data["verifier"]`; each verifier is made when it is first needed."""

    def __init__(self, config: VerifierConfig | None = None) -> None:
        super().__init__(config)
        self._verifiers: dict[str, Verifier] = {}

    @property
    def repeatable(self) -> bool:
        """Whether all verifiers that were needed so far are repeatable."""
        return all(verifier.repeatable for verifier in self._verifiers.values())

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request, in the same order; every verifier gets its requests at once.

        Raises:
            ConfigError: a problem names no verifier, or one that there is not.
        """
        places: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(str(request.problem.data.get("verifier")), []).append(place)
        found: dict[int, Verdict] = {}
        for name, those in places.items():
            verifier = self._verifier(name, requests[those[0]].problem)
            verdicts = verifier.verify_many([requests[place] for place in those])
            found.update(zip(those, verdicts, strict=True))
        return [found[place] for place in range(len(requests))]

    def close(self) -> None:
        """Close every verifier."""
        with ExitStack() as stack:
            for verifier in self._verifiers.values():
                stack.callback(verifier.close)

    def _verifier(self, name: str, problem: Problem) -> Verifier:
        from groupwise.verifiers import VERIFIERS  # not before, because this class stands in that table

        known = sorted(set(VERIFIERS) - {"routed"})
        if name not in known:
            raise ConfigError(
                f"problem {problem.id} names the verifier {name!r} in its data, as problems of a mixture do; allowed "
                f"are {', '.join(known)}"
            )
        if name not in self._verifiers:
            self._verifiers[name] = VERIFIERS[name](self.config)
        return self._verifiers[name]
