"""Settings of the mail server that contradict each other are named."""

import pytest

from regroup.service.domain.settings.mail import find_mail_problem


@pytest.mark.parametrize(
    ("host", "sender", "user", "has_password", "tls"),
    [
        ("", "", "", False, "starttls"),
        ("mail.example", "a@example.org", "", False, "off"),
        ("mail.example", "a@example.org", "ana", True, "tls"),
        ("localhost", "a@example.org", "ana", True, "off"),
    ],
)
def test_settings_that_fit(host: str, sender: str, user: str, has_password: bool, tls: str) -> None:
    assert find_mail_problem(host, sender, user, has_password=has_password, tls=tls) is None


@pytest.mark.parametrize(
    ("host", "sender", "user", "has_password", "tls", "name", "text"),
    [
        ("mail.example", "", "", False, "tls", "smtp_sender", "smtp_host needs smtp_sender"),
        ("mail.example", "a@example.org", "ana", False, "tls", "smtp_password_file", "belong together"),
        ("mail.example", "a@example.org", "", True, "tls", "smtp_user", "belong together"),
        ("mail.example", "a@example.org", "ana", True, "off", "smtp_tls", "would carry the password"),
    ],
)
def test_the_wrong_setting_is_named(
    host: str, sender: str, user: str, has_password: bool, tls: str, name: str, text: str
) -> None:
    problem = find_mail_problem(host, sender, user, has_password=has_password, tls=tls)
    assert problem is not None and problem[0] == name and text in problem[1]
