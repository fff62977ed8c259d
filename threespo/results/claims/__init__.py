"""The paper's claims: rules (``rules``), and what a study's numbers say of them (``verdicts``)."""
