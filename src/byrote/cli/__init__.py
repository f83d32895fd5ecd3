"""One file per command; flags are generated from the configuration."""
