"""Delivery by e-mail, with the mail server of the settings."""

import asyncio
import smtplib
import ssl
from collections.abc import Sequence
from concurrent.futures import Executor
from email.message import EmailMessage

from regroup.service.policy.hooks.mail import render_mail
from regroup.service.policy.hooks.retries import Attempt
from regroup.service.settings import Settings
from regroup.service.store.rows.hook_rows import ClaimedDelivery

_TIMEOUT_S = 10.0
"""Timeout of each step of the protocol."""
_MAX_ERROR = 300


class MailSender:
    """Sends notifications as e-mail.

    Args:
        settings: address and password of the mail server.
        threads: executor in which the blocking client runs.
    """

    def __init__(self, settings: Settings, threads: Executor) -> None:
        self._settings, self._threads = settings, threads

    async def send(self, claimed: ClaimedDelivery) -> Attempt:
        """Send a notification, and return the result."""
        if not self._settings.smtp_host:
            return Attempt(error="this server sends no e-mail: REGROUP_SMTP_HOST is empty", is_final=True)
        recipients = claimed.hook.recipients
        mail = render_mail(claimed.delivery.event, self._settings.smtp_sender, recipients)
        loop = asyncio.get_running_loop()
        try:
            refused = await loop.run_in_executor(self._threads, self._send, mail, recipients)
        except smtplib.SMTPRecipientsRefused as error:
            return Attempt(error=_describe_refusal(error.recipients))
        except smtplib.SMTPResponseException as error:
            return Attempt(error=_describe_answer(error.smtp_code, error.smtp_error))
        except (smtplib.SMTPException, OSError, ValueError) as error:
            text = " ".join(str(error).split())
            return Attempt(error=f"the mail server did not accept it: {type(error).__name__}: {text}"[:_MAX_ERROR])
        # A further attempt would reach those again that the server accepted.
        return Attempt(error=_describe_refusal(refused) if refused else "", is_accepted=True)

    def _send(self, mail: EmailMessage, recipients: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        """Send a message; return the refused recipients with the answers of the server."""
        settings = self._settings
        host, port = settings.smtp_host, settings.smtp_port
        trust = None if settings.smtp_tls == "off" else ssl.create_default_context()
        if settings.smtp_tls == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=_TIMEOUT_S, context=trust)
        else:
            server = smtplib.SMTP(host, port, timeout=_TIMEOUT_S)
        with server:
            if settings.smtp_tls == "starttls":
                server.starttls(context=trust)
            if settings.smtp_password_file is not None:
                server.login(settings.smtp_user, settings.smtp_password_file.read_text().strip())
            return server.send_message(mail, settings.smtp_sender, list(recipients))


def _describe_answer(code: int, answer: bytes | str) -> str:
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return " ".join(f"the mail server answered {code} {text}".split())[:_MAX_ERROR]


def _describe_refusal(refused: dict[str, tuple[int, bytes]]) -> str:
    answers = (f"{name}: {code} {answer.decode(errors='replace')}" for name, (code, answer) in refused.items())
    return " ".join(f"the mail server refused {'; '.join(answers)}".split())[:_MAX_ERROR]
