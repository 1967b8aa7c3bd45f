"""Official data, fetched from its publishers: `sources.yaml` says where they offer it, and under what licence."""
