"""Threads read in the order of their numbers, and what they do afterwards overlaps."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from regroup.workers.agent.checkpoints.read_order import ReadOrder


def test_numbers_read_in_order_regardless_of_which_begins_first() -> None:
    order, read = ReadOrder(), list[int]()
    everyone = threading.Barrier(4)

    def act(number: int) -> None:
        with order.turn(number):
            read.append(number)
        everyone.wait(10)  # the others read before this one ends

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(act, [2, 0, 3, 1]))
    assert read == [0, 1, 2, 3]


def test_a_number_that_reads_nothing_leaves_its_turn() -> None:
    order = ReadOrder()
    order.turn(1).leave()
    order.turn(1).leave()
    order.turn(0).leave()
    with order.turn(2):
        pass
    order.wait(3)


def test_a_failed_read_lets_the_next_one_read() -> None:
    order = ReadOrder()
    with pytest.raises(OSError, match="damaged"), order.turn(0):
        raise OSError("damaged")
    order.wait(1)


def test_a_number_may_read_again() -> None:
    order = ReadOrder()
    turn = order.turn(0)
    for _ in range(2):
        with turn:
            pass
    with order.turn(1), turn:  # a chunk is read again while the next one is read
        pass
    order.wait(2)
