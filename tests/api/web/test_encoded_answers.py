"""Answers that are encoded once for all that ask for the same."""

import gc
import json

from regroup.api.schemas.wire import Wire
from regroup.api.web.encoded_answers import EncodedAnswers


class Count(Wire):
    """An answer."""

    count: int
    text: str = ""


class State:
    """A value behind an answer."""


class Maker:
    """Makes answers, and counts them."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Count:
        self.made += 1
        return Count(count=self.made)


def test_an_answer_is_made_once_for_each_value_and_form() -> None:
    answers, make, state = EncodedAnswers(), Maker(), State()
    first = answers.answer(("a", 1), state, make, None)
    assert json.loads(bytes(first.body)) == {"count": 1, "text": ""} and first.media_type == "application/json"
    assert answers.answer(("a", 1), state, make, None).body == first.body and make.made == 1
    assert json.loads(bytes(answers.answer(("a", 2), state, make, None).body))["count"] == 2
    assert json.loads(bytes(answers.answer(("a", 1), State(), make, None).body))["count"] == 3


def test_a_client_that_has_the_answer_gets_304_with_its_tag() -> None:
    answers, state = EncodedAnswers(), State()
    tag = answers.answer("a", state, Maker(), None).headers["ETag"]
    for sent in (tag, f'"other", {tag}'):
        found = answers.answer("a", state, Maker(), sent)
        assert (found.status_code, found.body, found.headers["ETag"]) == (304, b"", tag)
    assert answers.answer("a", state, Maker(), '"other"').status_code == 200
    changed = State()
    assert answers.answer("a", changed, Maker(), tag).status_code == 304, "another value, but the same answer"
    later = Maker()
    later.made = 1
    assert answers.answer("a", State(), later, tag).status_code == 200


def test_the_value_behind_an_answer_is_not_kept_alive() -> None:
    answers, make = EncodedAnswers(), Maker()
    answers.answer("a", State(), make, None)
    gc.collect()
    assert not any(isinstance(each, State) for each in gc.get_objects())
    # A new object may have the address of the old one: it is another value.
    answers.answer("a", State(), make, None)
    assert make.made == 2


def test_the_oldest_answers_are_removed_when_they_are_too_many_bytes() -> None:
    answers, make, state = EncodedAnswers(most_bytes=60), Maker(), State()
    for form in ("a", "b", "c"):  # of 21 bytes each
        answers.answer(form, state, make, None)
    answers.answer("c", state, make, None)
    answers.answer("b", state, make, None)
    assert make.made == 3
    answers.answer("a", state, make, None)
    assert make.made == 4
    large = Count(count=1, text="x" * 100)
    assert len(bytes(answers.answer("d", state, lambda: large, None).body)) > 100, "it is sent, but not kept"
