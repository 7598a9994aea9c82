"""A rank's channel to its agent."""

import fcntl
import os
import resource
import socket

import pytest

from regroup.workers.contract.messages import FaultDue, FaultGranted, MirrorDue, Stop, encode
from regroup.workers.rank.agent_channel import Channel


def test_a_rank_receives_messages_with_any_number_of_open_descriptors() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2048:
        pytest.skip(f"only {soft} descriptors may be open here")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD, 1500)
    with ours, theirs, socket.socket(fileno=high) as rank:
        assert os.fstat(rank.fileno()).st_ino == os.fstat(theirs.fileno()).st_ino
        channel = Channel(rank)
        assert channel.poll() is None
        ours.send(encode(Stop("drain")))
        assert channel.poll() == Stop("drain")


def test_requests_of_the_agent_are_not_replies_and_are_not_lost() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        channel = Channel(theirs)
        for message in (MirrorDue(), Stop("drain"), FaultGranted(3, granted=True)):
            ours.send(encode(message))
        assert channel.request(FaultDue(3, "sigkill"))[0] == FaultGranted(3, granted=True)
        assert [channel.poll(), channel.poll(), channel.poll()] == [MirrorDue(), Stop("drain"), None]
