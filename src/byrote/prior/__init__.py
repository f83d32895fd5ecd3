"""Prior-aware memorization: options, draws, estimate, columns, run, report section."""
