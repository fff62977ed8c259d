"""The environments in the forms of other frameworks; a module for each, which imports its framework where it needs it."""
