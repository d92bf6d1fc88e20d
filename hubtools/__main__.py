"""`python -m hubtools`."""

from hubtools.cli.main import main

main()
