"""Checks of the sources, the documents and our own programs: `ci/run check NAME`."""
