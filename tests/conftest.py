"""What tests of all folders share. (Being a package lets them import `tests.fakes`.)"""

from hypothesis import settings

# A deadline would measure how busy the machine is.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
