"""Tasks that draw their problems one by one, by number."""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import count

from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask


class DrawnTask(GeneratedTask):
    """Every problem is drawn once and kept, because the three splits look through the same candidates."""

    def __init__(self, config: GeneratedConfig) -> None:
        super().__init__(config)
        self._drawn: list[Candidate] = []

    @abstractmethod
    def draw(self, index: int) -> Candidate:
        """The candidate of this number."""

    def candidates(self) -> Iterator[Candidate]:
        for index in count():
            if index == len(self._drawn):
                self._drawn.append(self.draw(index))
            yield self._drawn[index]
