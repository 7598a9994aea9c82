"""The only modules that use torch's private names, and names that torch marks as experimental.

Each version of torch may change them. The tests of this package run on every supported version, so an upgrade shows
here first what it breaks. `tests/workers/torch_internals/test_boundary.py` finds private names elsewhere.
"""
