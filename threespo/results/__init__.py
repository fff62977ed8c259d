"""From finished runs to tables, figures and the report."""
