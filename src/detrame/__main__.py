"""``python -m detrame``: the command line where there is no `detrame` on the path."""

from detrame.cli import main

main()
