"""Statistics of a study and what they say: intervals, comparisons of methods, and sentences on them."""
