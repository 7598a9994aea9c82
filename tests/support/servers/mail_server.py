"""A mail server on loopback that speaks enough SMTP (RFC 5321) for a client, and records messages."""

import asyncio
import email
import email.policy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import cast


@dataclass(frozen=True)
class Mail:
    """A message that the server accepted."""

    sender: str
    recipients: tuple[str, ...]
    message: EmailMessage


@dataclass
class MailServer:
    """A running mail server."""

    port: int = 0
    refuses: set[str] = field(default_factory=set[str])
    """Recipients that it refuses."""
    failures: int = 0
    """Number of messages that it refuses for now."""
    mails: list[Mail] = field(default_factory=list[Mail])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk to one client."""
        sender, recipients = "", list[str]()

        def answer(line: str) -> None:
            writer.write(f"{line}\r\n".encode())

        try:
            answer("220 mail.test ready")
            while line := (await reader.readline()).decode().strip():
                verb = line.upper()
                if verb.startswith(("EHLO", "HELO")):
                    answer("250 mail.test")
                elif verb.startswith("MAIL FROM:"):
                    sender, recipients = _address(line), []
                    answer("250 sender accepted")
                elif verb.startswith("RCPT TO:"):
                    if _address(line) in self.refuses:
                        answer("550 no such mailbox")
                    else:
                        recipients.append(_address(line))
                        answer("250 recipient accepted")
                elif verb == "DATA":
                    answer("354 end with a full stop")
                    content = await reader.readuntil(b"\r\n.\r\n")
                    answer(self._accept(sender, recipients, content[:-3]))
                elif verb == "RSET":
                    answer("250 reset")
                else:
                    answer("221 bye" if verb == "QUIT" else "502 not implemented")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left
        finally:
            writer.close()

    def _accept(self, sender: str, recipients: list[str], content: bytes) -> str:
        if self.failures:
            self.failures -= 1
            return "451 try again later"
        message = email.message_from_bytes(content, policy=email.policy.default)
        self.mails.append(Mail(sender, tuple(recipients), cast(EmailMessage, message)))
        return "250 accepted"


def _address(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]


@asynccontextmanager
async def running_mail_server() -> AsyncIterator[MailServer]:
    """Start a mail server; end it when the block ends."""
    mail = MailServer()
    server = await asyncio.start_server(mail.serve, "127.0.0.1", 0)
    mail.port = server.sockets[0].getsockname()[1]
    try:
        yield mail
    finally:
        server.close()
        await server.wait_closed()
