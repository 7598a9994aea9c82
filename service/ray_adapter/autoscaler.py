"""What Ray's autoscaler is asked for. The newest request in a cluster stands alone, whoever made it."""

from collections.abc import Sequence

from ray.autoscaler.sdk import request_resources

from regroup.service.policy.scheduling.autoscaler_request import Bundle


def request_nodes(bundles: Sequence[Bundle]) -> None:
    """Have the cluster hold all of these at once; with none, ask for nothing more. Blocking."""
    request_resources(
        bundles=[bundle.to_ray() for bundle in bundles],
        bundle_label_selectors=[bundle.labels() for bundle in bundles],
    )
