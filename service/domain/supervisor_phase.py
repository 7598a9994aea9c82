"""The phases of a supervisor."""

from enum import StrEnum


class SupervisorPhase(StrEnum):
    """The present activity of a supervisor. Agents may report other phases of starting."""

    AGENTS = "agents"
    SECRETS = "secrets"
    ENVIRONMENT = "environment"
    DATA = "data"
    PREFLIGHT = "preflight"
    STORAGE = "storage"
    FORMING = "forming"
    RESTORING = "restoring"
    TRAINING = "training"
    RUNNING = "running"
    RECOVERING = "recovering"
    BACKOFF = "backoff"
    FENCE = "fence"
    HELD = "held"
    RELEASED = "released"
    ENDED = "ended"
