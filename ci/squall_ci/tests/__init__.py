"""Unit tests of the tool: `ci/run python` runs them."""
