"""What is opened when first needed, and closed by `with` or `close`: verifiers, tools, sandboxes."""

from types import TracebackType
from typing import Self


class Closing:
    """A part that may start something; `with part:` ends it."""

    def close(self) -> None:
        """End what was started. The part may be used again afterwards."""
        return  # most start nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
