"""python -m labelwise."""

from labelwise.cli.main import main

main()
