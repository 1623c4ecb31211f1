"""Benchmarks: `ci/run bench NAME`."""
