"""The message of a notification by e-mail. Pure."""

from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate

from regroup.service.domain.hooks import HookEvent
from regroup.service.policy.hooks.summary import summarize


def render_mail(event: HookEvent, sender: str, recipients: Sequence[str]) -> EmailMessage:
    """Return the message of an event. The headers have no text with line breaks, so none can be added."""
    summary = summarize(event)
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = ", ".join(recipients)
    mail["Subject"] = summary.title
    mail["Date"] = formatdate(event.time_s) if 0 <= event.time_s < 2**33 else formatdate(0)
    # The same in all attempts: programs that show mail then show it once.
    mail["Message-ID"] = f"<{event.message_id}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Regroup-Event"] = event.type
    width = max((len(name) for name, _ in summary.facts), default=0)
    lines = [f"{name + ':':<{width + 1}} {value}" for name, value in summary.facts]
    mail.set_content("\n".join([summary.title, "", *lines, ""]))
    return mail
