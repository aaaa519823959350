"""Settings of several processes that train one model."""

from pydantic import Field

from groupwise.config import Section


class RanksConfig(Section):
    """Several processes that train one model together (docs/do/cards.md); how many there are, the command line says."""

    partial_sums: int = Field(0, ge=0)
    """Gradients are added up in so many partial sums, which are then added pairwise, and problems are sampled in so
    many shares. Runs with the same number give the same bits in one process, on half as many ranks and on as many;
    0: as many as there are ranks. In one process a number above 1 samples more slowly, and holds some gradients more.
    """
    deadline_s: float = Field(1800.0, gt=0)
    """Seconds that a rank waits for the others before it gives them up and ends."""
    offload: bool = False
    """Keep every rank's rows of weights, gradients and moments in the processor's memory, and update them there: a card
    holds what it computes with, and no more (FSDP2's CPU offload). Every layer's weights travel to the card for each
    forward and backward. For several ranks; where they compute on processors nothing is elsewhere, nor any bit."""
