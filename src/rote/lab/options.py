"""Words a user of the lab chooses among."""

from typing import Literal

PresetName = Literal["quick", "full", "test"]
