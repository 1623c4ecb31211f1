"""The tool behind `ci/run`: everything that builds, checks, measures and shows squall, as subcommands.

`registry` declares the commands, one module each in `commands`, `suites`, `benchmarks` and `checks`; the modules beside this
file are shared. Only the standard library is used: the tool must run on a machine where nothing has been set up yet.
"""
