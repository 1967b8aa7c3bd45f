"""The five tasks behind one interface (`base`). No torch on this floor."""
