"""The commands without a group. A module has a help text (its docstring), perhaps `arguments(parser)`, and `main(args)`, which
returns the exit status."""
