"""`python -m regroup.api.cli`."""

from regroup.api.cli.main import main

main()
