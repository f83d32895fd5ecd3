"""Property tests of this room are judged by what they find, not by how long one example takes on a busy machine."""

from hypothesis import settings

settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")
