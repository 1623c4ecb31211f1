"""The subcommands: each module has a help text (its docstring), `arguments(parser)` and `run(args)`, the exit status."""
