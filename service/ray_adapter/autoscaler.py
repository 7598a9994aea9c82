"""Requests to Ray's autoscaler. The newest request in a cluster replaces all earlier requests of all processes."""

from collections.abc import Sequence

from ray.autoscaler.sdk import request_resources

from regroup.service.policy.scheduling.autoscaler_request import Bundle


def request_nodes(bundles: Sequence[Bundle]) -> None:
    """Request capacity for all these bundles at once. An empty list withdraws the request. Blocking."""
    request_resources(
        bundles=[bundle.to_ray() for bundle in bundles],
        bundle_label_selectors=[bundle.labels() for bundle in bundles],
    )
