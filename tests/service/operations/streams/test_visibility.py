"""Each identity sees the notices of what it may read."""

from regroup.service.domain.identity import Identity, IdentityKind, Membership, Role
from regroup.service.operations.streams.visibility import Visibility
from regroup.service.store.notices.notice_rows import Notice, Topic

NOTICES = [
    Notice(Topic.JOB, "state", 1.0, project="own"), Notice(Topic.JOB, "state", 1.0, project="other"),
    Notice(Topic.PROJECT, "put", 1.0, project="own"), Notice(Topic.PROJECT, "put", 1.0, project="other"),
    Notice(Topic.NODE, "drain", 1.0, node="n1"), Notice(Topic.STREAM, "start", 1.0),
]  # fmt: skip


def seen(identity: Identity) -> list[bool]:
    return [Visibility.of(identity).includes(notice) for notice in NOTICES]


def test_members_see_their_projects_and_everyone_sees_nodes() -> None:
    member = Identity("ana", IdentityKind.USER, {"own": Membership(Role.VIEWER)})
    assert seen(member) == [True, False, True, False, True, True]
    assert seen(Identity("new", IdentityKind.USER)) == [False, False, False, False, True, True]
    assert seen(Identity("op", IdentityKind.USER, everywhere=Role.VIEWER)) == [True] * 6
