"""Benchmarks: `python -m benchmarks.NAME --json PATH [--trials N]`. Method, caveats, results: `docs/benchmarks.md`."""
