"""Print the lowest versions of pyproject.toml's dependencies, as constraints for pip."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
for requirement in project["dependencies"]:
    print(re.sub(r">=([^,]+).*", r"==\1", requirement))
