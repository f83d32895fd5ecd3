"""rote tells you how much of a text a language model can reproduce, exactly and nearly, with bounds you can defend."""

__version__ = "0.1.0"
