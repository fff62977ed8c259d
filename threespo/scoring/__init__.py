"""The paper's mathematics in float64, without torch: eq. 1 (score), eq. 2 (reward), eq. 3 (allocation), advantages."""
