"""What the generated tasks of proofs share."""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import count, permutations

from groupwise.randomness import Draw
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask


class DrawnTask(GeneratedTask):
    """Draws its candidates one after the other and keeps them: three splits want the same ones, and they are dear."""

    answers_any_question = False

    def __init__(self, config: GeneratedConfig) -> None:
        super().__init__(config)
        self._drawn: list[Candidate] = []

    @abstractmethod
    def draw_candidate(self, draw: Draw) -> Candidate:
        """A provable problem and its content."""

    def candidates(self) -> Iterator[Candidate]:
        for index in count():
            if index == len(self._drawn):
                self._drawn.append(self.draw_candidate(Draw(self.name, index)))
            yield self._drawn[index]


def canonical(given: list[str], goal: str, letters: str) -> str:
    """The same text for problems that differ in the order of what is given or in the names of the letters only."""
    used = "".join(letter for letter in letters if any(letter in text for text in (*given, goal)))
    tables = [str.maketrans(used, "".join(order)) for order in permutations(letters[: len(used)])]
    renamed = ([text.translate(table) for text in (*given, goal)] for table in tables)
    return min("; ".join([*sorted(lines[:-1]), lines[-1]]) for lines in renamed)
