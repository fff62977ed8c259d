"""The paper's section on theory, simulated."""
