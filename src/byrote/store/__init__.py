"""The run folder: manifest, atomic parts, resume, export."""
