"""`python -m byrote` is the `byrote` command."""

from byrote.cli.entry import main

if __name__ == "__main__":
    main()
