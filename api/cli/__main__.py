"""`python -m regroup.api.cli`."""

from regroup.api.cli import main

main()
