from regroup.api.cli.common.contact import ContactReport


class Watched:
    """A report whose clock the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lines: list[str] = []
        self.report = ContactReport("http://h:1", self.lines.append, lambda: self.now_s)

    def lost_at(self, now_s: float, left_s: float = 100.0) -> None:
        self.now_s = now_s
        self.report.lost("Connection refused", left_s)


def test_a_short_loss_prints_nothing() -> None:
    watched = Watched()
    for now_s in (0.0, 0.3, 0.9):
        watched.lost_at(now_s)
    watched.report.answered()
    assert watched.lines == []


def test_a_loss_is_reported_once_in_ten_seconds_and_its_end_once() -> None:
    watched = Watched()
    for tenth in range(300):
        watched.lost_at(tenth / 10, left_s=120 - tenth / 10)
    assert watched.lines == [
        f"the server http://h:1 does not answer (Connection refused); trying again for {left}. Jobs continue without it"
        for left in ("1 m 59 s", "1 m 49 s", "1 m 39 s")
    ]
    watched.report.answered()
    watched.report.answered()
    assert watched.lines[3:] == ["the server http://h:1 answers again"]


def test_the_end_of_the_patience_is_left_to_the_error() -> None:
    watched = Watched()
    watched.lost_at(0.0, left_s=3.0)
    watched.lost_at(1.5, left_s=1.5)
    assert watched.lines == []


def test_a_server_that_accepts_and_is_silent_is_reported() -> None:
    watched = Watched()
    watched.report.expect(5.0)
    watched.now_s = 4.9
    watched.report.check()
    assert watched.lines == []
    watched.now_s = 6.0
    watched.report.check()
    watched.report.check()
    assert watched.lines == ["the server http://h:1 has not answered for 6.0 s; waiting. Jobs continue without it"]
    watched.report.done()
    watched.now_s = 60.0
    watched.report.check()
    assert len(watched.lines) == 1
