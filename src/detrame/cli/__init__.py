"""The command line: arguments in, calls out; the only place that prints."""
