"""One way to declare an option: a typed field of a frozen dataclass. Flag, YAML key, help and checks follow.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Example(Settled):
        top_k: int | None = option(40, "Keep the k most likely tokens.", group="policy", at_least=1)

gives `--top-k INTEGER`, the key `top_k` of a configuration file, and one sentence for a value that does not fit,
wherever that value came from.
"""

from rote.options.convert import Settled, build, settle
from rote.options.declare import Option, flags_of, like, option, required
from rote.options.file import read_config_file

__all__ = ["Option", "Settled", "build", "flags_of", "like", "option", "read_config_file", "required", "settle"]
