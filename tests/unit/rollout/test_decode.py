"""A step in numpy, and the buckets it is padded to."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from groupwise.rollout.cuda_graphs import SHORTEST_SUFFIX, padded, round_up
from groupwise.rollout.decode import Shape, Step


def step(lengths: list[int], slots: list[int], prompt_of_slot: list[int]) -> Step:
    tokens = np.arange(10, 10 + len(lengths))
    return Step(tokens, np.array(lengths), np.array(slots), np.array(prompt_of_slot)[slots])


def test_a_step_has_the_sizes_of_what_is_in_it() -> None:
    assert step([0, 4, 2], [1, 0, 1], [7, 3]).shape == Shape(rows=3, slots=2, members=2, prompt=7, suffix=5)


def test_a_packed_step_says_who_belongs_to_whom() -> None:
    packed = step([0, 4, 2], [1, 0, 1], [7, 3]).packed(Shape(4, 3, 2, 8, 8))
    tokens, lengths, prompts, places, members = np.split(packed, [4, 8, 12, 16])
    assert tokens.tolist() == [10, 11, 12, 0]
    assert lengths.tolist() == [0, 4, 2, 0]
    assert prompts.tolist() == [3, 7, 3, 1]
    assert members.reshape(3, 2).tolist() == [[1, 0], [0, 2], [0, 0]]
    assert places.tolist() == [2, 0, 3, 0]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_every_row_finds_itself_in_the_table(slots: list[int]) -> None:
    used = sorted(set(slots))
    slots = [used.index(slot) for slot in slots]
    one = step([1] * len(slots), slots, [1] * len(used))
    for shape in (one.shape, Shape(len(slots) + 3, len(used) + 2, one.shape.members + 4, 1, 2)):
        packed = one.packed(shape)
        places, members = packed[3 * shape.rows : 4 * shape.rows][: len(slots)], packed[4 * shape.rows :]
        assert members[places].tolist() == list(range(len(slots)))
        assert (places // shape.members).tolist() == slots


def test_only_a_step_without_padding_needs_no_mask() -> None:
    even = step([3, 3], [0, 1], [5, 5])
    assert even.fills(even.shape)
    assert not even.fills(even.shape._replace(suffix=8))
    assert not even.fills(even.shape._replace(prompt=8))
    assert not even.fills(even.shape._replace(rows=3))
    for uneven in (step([3, 2], [0, 1], [5, 5]), step([3, 3], [0, 1], [5, 4])):
        assert not uneven.fills(uneven.shape)


def test_sizes_are_rounded_up_to_two_per_doubling() -> None:
    assert [round_up(size) for size in range(1, 18)] == [1, 2, 3, 4, 6, 6, 8, 8, *[12] * 4, *[16] * 4, 24]
    assert [round_up(size) for size in (65, 97, 1025)] == [96, 128, 1536]


@given(st.integers(1, 1 << 20))
def test_rounding_up_adds_at_most_half(size: int) -> None:
    rounded = round_up(size)
    assert size <= rounded <= 1.5 * size
    assert round_up(rounded) == rounded
    assert round_up(size + 1) >= rounded


@given(st.integers(1, 300), st.data())
def test_a_padded_step_has_room_for_the_step(rows: int, data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, rows))
    members = data.draw(st.integers(1, rows - slots + 1))
    prompt, suffix = data.draw(st.integers(1, 2000)), data.draw(st.integers(1, 2000))
    shape = Shape(rows, slots, members, prompt, suffix)
    more = st.integers(0, 500)
    largest = Shape(*(round_up(size + data.draw(more)) for size in shape))
    room = padded(shape, largest)
    assert all(has >= needs for has, needs in zip(room, shape, strict=True))
    assert room.rows <= largest.rows
    assert room.suffix <= max(largest.suffix, SHORTEST_SUFFIX)
