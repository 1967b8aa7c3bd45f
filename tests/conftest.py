"""What tests of all folders share. (Being a package lets them import `tests.fakes`.)"""
