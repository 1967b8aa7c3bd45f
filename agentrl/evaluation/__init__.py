"""A policy on a split: episodes as Parquet, and what they say."""
