"""The scan: windows of texts through every measure, from options to a finished run folder."""
