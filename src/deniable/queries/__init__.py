"""Questions: SQL and dataframe fronts, one plan, engines, and the release of noisy answers."""
