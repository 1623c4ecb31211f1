"""The tool behind `ci/run`: everything that builds, checks, measures and shows squall, as subcommands.

`registry` declares the subcommands, one module of `commands` each; what they share lies beside this file. Only the standard
library: it must run on a machine where nothing has been set up yet.
"""
