"""Suites of other people, MPI programs and live experiments: `ci/run suite NAME`."""
