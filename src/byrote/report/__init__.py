"""From results to figures, tables and one self-contained page."""
