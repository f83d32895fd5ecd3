"""`python -m rote` is the `rote` command."""

from rote.cli.entry import main

if __name__ == "__main__":
    main()
