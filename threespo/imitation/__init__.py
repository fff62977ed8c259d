"""Base policies made by behaviour cloning: curricula, scripted experts, training, and the policies that are shipped."""
