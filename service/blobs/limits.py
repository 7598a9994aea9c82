"""Limits of code archives, for clients that pack one."""

from regroup.workers.contract.archive_rules import ArchiveLimits

__all__ = ["ArchiveLimits"]
