"""Options, their defaults, and the execution of a run."""
