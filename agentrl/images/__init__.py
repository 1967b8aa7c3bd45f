"""Container images: `contexts` reads what `envs/` describes, `daemon` builds it and removes it again."""
