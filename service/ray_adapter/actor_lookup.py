"""Handles of supervisors and agents by name. Ray shows longer names, with the names of job and node."""

from typing import Any, cast

import ray
from ray.util import list_named_actors

from regroup.service.ports.actor_names import name_of
from regroup.service.ports.cluster import NAMESPACE, job_id_of


class ActorLookup:
    """Finds actors, and remembers the names under which Ray shows them."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}

    def learn(self, name: str, shown: str) -> None:
        """Remember under which name Ray shows an actor, whether it exists or not."""
        self._shown[name] = shown

    def forget_job(self, job_id: str) -> None:
        """Forget the names of a job's actors. They have ended."""
        self._shown = {name: shown for name, shown in self._shown.items() if job_id_of(name) != job_id}

    def get(self, name: str) -> Any:
        """Return the handle of an actor. Blocking.

        Raises:
            ValueError: there is no such actor.
        """
        if name not in self._shown:
            self._shown = {name_of(shown): shown for shown in shown_names()}
        return ray.get_actor(self._shown.get(name, name), namespace=NAMESPACE)


def shown_names() -> set[str]:
    """Return the names under which Ray shows the live actors of our namespace. Blocking."""
    named = cast(list[dict[str, str]], list_named_actors(all_namespaces=True))
    return {actor["name"] for actor in named if actor["namespace"] == NAMESPACE}
