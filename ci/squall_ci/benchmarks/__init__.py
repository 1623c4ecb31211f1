"""Benchmarks: `ci/run bench messages NAME`."""
