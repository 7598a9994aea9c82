"""regroup: elastic multi-node training on Ray.

The folders `api`, `service` and `workers` stand at the top of the checkout and are linked in here, so that no
package of those names ever lands on anybody's import path.
"""

__version__ = "0.1.0"
