"""Where data, models and training come together: comparisons and their report."""
