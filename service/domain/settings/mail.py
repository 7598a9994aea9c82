"""Checks of the settings of the mail server. Pure."""

from regroup.service.domain.loopback import is_loopback_host


def find_mail_problem(host: str, sender: str, user: str, *, has_password: bool, tls: str) -> tuple[str, str] | None:
    """Return the setting of the mail server that cannot be used, and why; None if all can.

    Args:
        host: mail server; empty for none.
        sender: address from which e-mail is sent.
        user: user of the mail server; empty for none.
        has_password: the file with its password is given.
        tls: encryption of the connection.
    """
    if host and not sender:
        return "smtp_sender", "smtp_host needs smtp_sender, the address from which e-mail is sent"
    if bool(user) != has_password:
        name = "smtp_password_file" if user else "smtp_user"
        return name, "smtp_user and smtp_password_file belong together: give both, or none"
    if user and tls == "off" and not is_loopback_host(host):
        return "smtp_tls", "the network would carry the password of smtp_user; use starttls or tls"
    return None
