"""The tree of byrote's errors. Every one is a sentence a user can act on; the CLI prints it and exits with code 2.

ByroteError
├── ConfigError      an option has a value that cannot work, or an unknown name
├── TextError        a text is missing, empty, not text, or unreadable
│   └── WindowError  a text gives no window, or a window does not fit the model
├── ModelError       a model or tokenizer cannot be loaded or cannot do what is asked
├── RunError         a run folder cannot be used: foreign, locked, incomplete, or made with something else
│   ├── StorageError the disk refused a write; what was finished before is kept
│   └── DamageError  a file of a run is not as it was written
└── EndpointError    a chat endpoint cannot be reached, refused the key, or broke its contract
    └── BudgetError  the next request would exceed the ceiling the user set

Foreign exceptions are translated once, at the back end where they arise, with `raise … from`.
`assert` is for our own bugs only.
"""


class ByroteError(Exception):
    """One clear sentence: what is wrong, with which value, and what to do."""


class ConfigError(ByroteError):
    """An option has a value that cannot work, or an unknown name."""


class TextError(ByroteError):
    """A text is missing, empty, not text, or unreadable."""


class WindowError(TextError):
    """A text gives no window, or a window does not fit the model."""


class ModelError(ByroteError):
    """A model or tokenizer cannot be loaded or cannot do what is asked."""


class RunError(ByroteError):
    """A run folder cannot be used: foreign, locked, incomplete, or made with something else."""


class StorageError(RunError):
    """The disk refused a write; what was finished before is kept."""


class DamageError(RunError):
    """A file of a run is not as it was written: damaged, cut, or changed."""


class EndpointError(ByroteError):
    """A chat endpoint cannot be reached, refused the key, or broke its contract."""


class BudgetError(EndpointError):
    """The next request would exceed the ceiling the user set."""
