"""The command line: `commands` declares every command, the other modules do the work; flags come from the options."""
