"""Search for better settings: what is searched, trials, where they are kept, and the report."""
