"""The page: template, style and script, and the data it carries."""
